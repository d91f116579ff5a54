"""The rows of the engine: "the engine ..."."""

from fault_matrix.engine_plays import (
    ERROR,
    accepting,
    altered,
    answering,
    as_stream,
    calling,
    cut,
    cut_in_chunk,
    dripping,
    late,
    raw,
    refusing,
    restarting,
    saying,
    silent,
    stopped,
    trickling,
    well,
)
from fault_matrix.fault import Fault, Outcome, both, buffered, streamed
from scripted_engine import DONE, unanswered_port
from wire_recordings import recording

OVERFLOW = refusing(400, body=recording("err_ctx_overflow").body)
WORDS = "the engine's words"
REASON = "`errors_told`, log: the reason"


def failed(agent: str, sent: str = "once", code: str = "upstream_error", operator: str = REASON) -> Outcome:
    """The agent is told of an error; where a part of a stream had reached it, the tokens of that are kept."""
    kept = ", with the tokens seen" if agent.startswith("the beginning") else ""
    return Outcome(agent, f"`failed` (`{code}`){kept}", operator, sent)


def answered(agent: str = "its answer", sent: str = "once", session: str = "`valid`", operator: str = "-") -> Outcome:
    return Outcome(agent, session, operator, sent)


def refused(status: int, sent: str = "once", operator: str = REASON, *, advice: bool = False) -> Outcome:
    """What the engine says reaches the agent, with its `Retry-After`."""
    return failed(f"{status}, {WORDS}{', `Retry-After`' if advice else ''}", sent, operator=operator)


ERROR_502 = failed("502 `upstream_error`")
NEVER_SENT = failed("502 `upstream_error`", "never")
BROKEN_OFF = failed("the beginning, then error event `upstream_error`")
STOPPED = failed("the beginning, then error event `upstream_error`", "once, stopped")
GIVEN = failed(f"the beginning, then {WORDS} as an error event")
TIMED_OUT = failed("504 `upstream_timeout`", "once, stopped", "upstream_timeout")
STREAM_TIMED_OUT = failed("the beginning, then error event `upstream_timeout`", "once, stopped", "upstream_timeout")
NO_REPLY = "{where} ended the connection without a reply"
FIRST_BYTE = {"first_byte_timeout": 0.1}

CONNECTION = [
    both("refuses connections", stopped, NEVER_SENT, says="cannot connect to {where}: connection refused"),
    both("does not take connections",
         calling, failed("504 `upstream_timeout`", "never", "upstream_timeout"), port=unanswered_port,
         target={"connect_timeout": 0.1}, says="within 0.1 s (connect_timeout of the target)"),
    both("takes a connection and closes it", accepting("close"), NEVER_SENT, says=NO_REPLY),
    both("takes a connection and resets it", accepting("reset"), NEVER_SENT, says=NO_REPLY),
    both("gets the call and closes", answering(silent("close")), ERROR_502, says=NO_REPLY),
    both("gets the call and resets", answering(silent("reset")), ERROR_502, says=NO_REPLY),
    both("closes an idle connection just as the call is sent on it", answering(silent("close"), well, warm=True),
         answered(sent="twice", operator="`resent`")),
    both("closes it, and the new connection as well", answering(silent("close"), silent("close"), warm=True),
         failed("502 `upstream_error`", "twice", operator="`errors_told`, `resent`, log: the reason"), says=NO_REPLY),
    both("restarts, and the target has `retries`", restarting, answered(operator="`repeated`, log: warning"),
         target={"retries": 20}),
]  # fmt: skip
SLOW = [
    both("says nothing for `first_byte_timeout`", answering(silent("stall")), TIMED_OUT, target=FIRST_BYTE,
         says="{where} did not begin its reply within 0.1 s (first_byte_timeout of the target)"),
    both("sends its headers byte by byte for `first_byte_timeout`", answering(dripping), TIMED_OUT, target=FIRST_BYTE,
         says="within 0.1 s (first_byte_timeout of the target)"),
    both("falls silent in mid-reply for `idle_timeout`", answering(cut("middle", "stall")), TIMED_OUT,
         STREAM_TIMED_OUT, target={"idle_timeout": 0.15},
         says="for 0.15 s in the middle of its reply (idle_timeout of the target)"),
    both("goes on for `total_timeout`", answering(trickling), TIMED_OUT, STREAM_TIMED_OUT,
         target={"total_timeout": 0.25}, says="did not finish its reply within 0.25 s (total_timeout of the target)"),
    both("answers after `early_headers_after`", answering(late(0.1, well)), answered(),
         answered("heartbeats, then its answer"), target={"early_headers_after": 0.04}),
    both("refuses after `early_headers_after`", answering(late(0.1, refusing(503))), refused(503),
         failed(f"heartbeats, then {WORDS} as an error event"), target={"early_headers_after": 0.04}),
]  # fmt: skip
CUT = [
    both("closes within its headers", answering(raw(b"HTTP/1.1 200 OK\r\ncontent-ty")), ERROR_502,
         says="{where} did not finish the head of its reply"),
    both("does not speak HTTP", answering(raw(b"SSH-2.0-OpenSSH_9.6\r\n")), ERROR_502, says="not valid HTTP"),
    both("closes in mid-reply", answering(cut("middle", "close")), ERROR_502, BROKEN_OFF,
         says="{where} broke off its reply"),
    both("resets in mid-reply", answering(cut("middle", "reset")), ERROR_502, BROKEN_OFF,
         says="{where} broke off its reply: connection reset by peer"),
    both("closes within a chunk of the transfer encoding", answering(cut_in_chunk), ERROR_502, BROKEN_OFF,
         says="{where} broke off its reply"),
    both("closes just before its finish reason", answering(cut("end", "close")), ERROR_502, BROKEN_OFF),
    streamed("ends its stream without a finish reason", answering(cut("end", "end")), BROKEN_OFF,
             says="the engine's stream ended early"),
    streamed("ends its stream with `[DONE]` but without a finish reason", answering(cut("end", "end", DONE)),
             BROKEN_OFF, says="the engine's stream has no finish reason"),
    streamed("sends an error event, then `[DONE]`", answering(cut("middle", "end", ERROR, DONE)), GIVEN),
    streamed("sends an error event and closes", answering(cut("middle", "close", ERROR)), GIVEN),
    streamed("sends an event that is no JSON, and goes on", answering(cut("middle", "stall", b"data: no\n\n")), STOPPED,
             says="an event of the engine's stream cannot be read"),
]  # fmt: skip
NO_ANSWER = [
    *(
        both(f"answers 200 with {what}", answering(saying(body)), ERROR_502, says="the engine's reply")
        for what, body in {
            "HTML": b"<html>hi</html>",
            "JSON that is cut off": b'{"id":"x","choices":[',
            "a JSON array": [],
            "`{}`": {},
            "nothing": b"",
        }.items()
    ),
    both('answers 200 with `{"error": ...}`', answering(saying(ERROR)), refused(502)),
    buffered("answers with a stream that was not asked for", answering(as_stream(True)), ERROR_502,
             says="a stream that was not asked for"),
    streamed("answers without the stream that was asked for", answering(as_stream(False)),
             answered("its answer, not as a stream")),
    both("leaves out the token ids", answering(altered(token_ids=None)),
         answered(session="`invalid` (`no_generation_token_ids`)")),
    both("aborts the generation", answering(altered(finish_reason="abort")), answered(session="`invalid` (`aborted`)")),
]  # fmt: skip
REFUSED = [
    both("redirects (307)", answering(refusing(307)), ERROR_502, says="redirects are not followed"),
    *(
        both(f"refuses the target's key ({status})", answering(refusing(status, body={"error": "Unauthorized"})),
             failed("502 `upstream_auth`", code="upstream_auth"), says="check `api_key` of the target")
        for status in (401, 403)
    ),
    both("refuses with 400", answering(refusing(400)), refused(400)),
    both("refuses a prompt that is too long (400)", answering(OVERFLOW), refused(400)),
    both("refuses a prompt that is too long, and the target has `on_context_overflow: empty_length`",
         answering(OVERFLOW), answered("an empty answer", session="`invalid` (`context_overflow`)"),
         target={"on_context_overflow": "empty_length"}),
    *(
        both(f"refuses with {status}{' and `Retry-After`' if after else ''}", answering(refusing(status, after=after)),
             refused(status, advice=status == 429 or after is not None))
        for status in (429, 500, 502, 503, 504)
        for after in (None, "1")
    ),
    both("refuses with 429, then 503, then answers, and the target has `retries`",
         answering(refusing(429, after="0"), refusing(503, after="0.02"), well),
         answered(sent="three times", operator="`repeated`, log: warning"), target={"retries": 2}),
    both("refuses with 503 until `retries` are used up", answering(refusing(503), refusing(503)),
         refused(503, "twice", "`errors_told`, `repeated`, log: warning"), target={"retries": 1}),
    both("refuses with 429 and a `Retry-After` beyond `retry_budget`", answering(refusing(429, after="9")),
         refused(429, advice=True), target={"retries": 5, "retry_budget": 1}),
    both("fails with 500, and the target has `retries`", answering(refusing(500)), refused(500),
         target={"retries": 5}),
]  # fmt: skip

ENGINE: dict[str, list[Fault]] = {
    "Reaching it": CONNECTION,
    "Waiting for it": SLOW,
    "It breaks off": CUT,
    "It gives no answer, or not a whole one": NO_ANSWER,
    "It refuses": REFUSED,
}
