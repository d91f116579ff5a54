"""The rows of the store: "the store ...", at each step of a call."""

from fault_matrix.fault import Fault, Outcome, both
from fault_matrix.store_plays import (
    at_begin,
    at_commit,
    at_mark,
    crawling,
    input_output_error,
    no_descriptors,
    no_permission,
    no_space,
    read_only,
    vanished,
)

UNAVAILABLE = "503 `capture_unavailable`, `Retry-After`"
ENGINE_ERROR = "500, the engine's words"
REASON = "`errors_told`, log: the reason"
FAILED = "`failed` (`upstream_error`)"

ANSWERED = Outcome("its answer", "`valid`", "-", "once")
TOLD = Outcome(ENGINE_ERROR, FAILED, REASON, "once")
NOT_BEGUN = Outcome(UNAVAILABLE, "-", "`errors_told`, `ledger.refused`, `/readyz`, log: error", "never")
LOST = Outcome("its answer", "`lost`, a placeholder", "`ledger.lost`, `/readyz`, log: error", "once")
WITHHELD, STREAM_WITHHELD = (
    Outcome(
        agent,
        "`open`, then `failed`, with the tokens seen",
        "`errors_told`, `ledger.unwritten`, `/readyz`, log: error",
        "once",
    )
    for agent in (UNAVAILABLE, "the beginning, then error event `capture_unavailable`")
)
MARKED_LATER = Outcome(
    ENGINE_ERROR, f"`open`, then {FAILED}", "`errors_told`, `ledger.unwritten`, `/readyz`, log: error", "once"
)
MARKED_BARELY = Outcome(ENGINE_ERROR, "`failed`, without a reason", "`errors_told`, `/readyz`, log: the reason", "once")

# What can be renamed can be marked.
RENAMES = {"is full": no_space, "has no file descriptors left": no_descriptors}
REFUSES = {"is read-only": read_only, "has no permission": no_permission, "has input/output errors": input_output_error}

BEGIN = [
    *(both(what, at_begin(strike), NOT_BEGUN) for what, strike in (RENAMES | REFUSES).items()),
    both("has lost its directory", at_begin(vanished), ANSWERED),
    both("takes 0.05 s for each file", at_begin(crawling(0.05)), ANSWERED),
    both("takes longer than `capture.begin_timeout`", at_begin(crawling(0.4)),
         Outcome(UNAVAILABLE, "-, then `failed`", "`errors_told`, `ledger.refused`", "never"),
         capture={"begin_timeout": 0.1}, says="it did not begin the call within 0.1 s"),
]  # fmt: skip
COMMIT = [
    *(both(what, at_commit(strike), LOST) for what, strike in RENAMES.items()),
    *(both(what, at_commit(strike), WITHHELD, STREAM_WITHHELD) for what, strike in REFUSES.items()),
    both("loses its directory", at_commit(vanished), ANSWERED),
    both("takes 0.2 s for each file", at_commit(crawling(0.2)), ANSWERED),
]
MARK = [
    *(both(what, at_mark(strike), MARKED_BARELY) for what, strike in RENAMES.items()),
    *(both(what, at_mark(strike), MARKED_LATER) for what, strike in REFUSES.items()),
    both("loses its directory", at_mark(vanished), TOLD),
    both("takes 0.2 s for each file", at_mark(crawling(0.2)), TOLD),
]

STORE: dict[str, list[Fault]] = {
    "When the call begins": BEGIN,
    "When its record is written": COMMIT,
    "When the engine has refused the call, and that is to be written": MARK,
}
