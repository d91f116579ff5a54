"""The rows of the agent: "the agent ..."."""

from fault_matrix.agent_plays import (
    GONE,
    LeavingAgent,
    after_the_end,
    in_mid_stream,
    while_the_tail_is_held,
    while_waiting,
)
from fault_matrix.fault import Fault, Outcome, both, streamed

WAYS = {"closes": LeavingAgent.leave, "resets": LeavingAgent.reset, "half-closes": LeavingAgent.half_close}
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
    ]
}
