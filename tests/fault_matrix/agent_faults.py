"""The rows of the agent: "the agent ..."."""

from fault_matrix.agent_plays import (
    GONE,
    after_the_end,
    half_close,
    in_mid_stream,
    stops_reading,
    stops_sending,
    while_the_tail_is_held,
    while_waiting,
)
from fault_matrix.fault import Fault, Outcome, both, streamed
from raw_agent import RawAgent

WAYS = {"closes": RawAgent.leave, "resets": RawAgent.reset, "half-closes": half_close}
STANDS_STILL = {"agent_stall_seconds": 0.3}
COUNTED = "`agent_gone`, log: the reason"
STOPPED = Outcome(GONE, "`failed` (`agent_gone`)", COUNTED, "once, stopped")
STOPPED_LATER = Outcome(GONE, "`failed` (`agent_gone`), with the tokens seen", COUNTED, "once, stopped")
UNDELIVERED = Outcome(GONE, "`undelivered`", "`agent_gone`", "once")
SERVED = Outcome("its answer", "`valid`", "-", "once")

AGENT: dict[str, list[Fault]] = {
    "It goes away": [
        *(both(f"{way} before its answer begins", while_waiting(leave), STOPPED) for way, leave in WAYS.items()),
        *(streamed(f"{way} in mid-stream", in_mid_stream(leave), STOPPED_LATER) for way, leave in WAYS.items()),
        *(
            both(f"{way} while the end is held for the record", while_the_tail_is_held(leave), UNDELIVERED)
            for way, leave in WAYS.items()
        ),
        *(both(f"{way} right after the end", after_the_end(leave), SERVED) for way, leave in WAYS.items()),
    ],
    "It stands still": [
        streamed(
            "stops reading for `server.agent_stall_seconds`",
            stops_reading,
            Outcome(GONE, "`failed` (`agent_stalled`)", COUNTED, "once, stopped"),
            server=STANDS_STILL,
        ),
        both(
            "stops in the middle of its request for `server.agent_stall_seconds`",
            stops_sending,
            Outcome("408 `request_timeout`", "-", "`errors_told`", "never"),
            says="0.3 s, the limit `server.agent_stall_seconds` of this proxy",
            server=STANDS_STILL,
        ),
    ],
}
