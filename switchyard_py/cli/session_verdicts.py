"""Whether sessions can be trained on, and why one cannot, in the words of the rules and of the diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from switchyard_py.cli.call_tree import ROLES, account_text, counted, diagnosed, failed, record_numbers, spelled
from switchyard_py.cli.session_sources import SessionSource, told
from switchyard_py.cli.terminal import Terminal, printable
from switchyard_py.rawjson import encode
from switchyard_py.rollouts import (
    Delivery,
    Diagnosis,
    Lineage,
    Mode,
    NothingToTrain,
    Refusal,
    RolloutError,
    Rule,
    SessionIncomplete,
    SourceError,
    build_lineage,
    deliver,
    trainable_chains,
)
from switchyard_py.rollouts.delivery import check_account

_INDENT = " " * 6


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a mode makes of a session: a delivery, or the refusal and as much of the lineage as can be read."""

    session_id: str
    mode: Mode
    delivery: Delivery | None = None
    refusal: Refusal | NothingToTrain | SessionIncomplete | SourceError | None = None
    lineage: Lineage | None = None

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """Of the record that broke a rule; of all records where no rule names one."""
        if self.lineage is None:
            return []
        record = self.refusal.record if isinstance(self.refusal, Refusal) else None
        return [each for each in self.lineage.forest.diagnoses if record in (None, each.call)]

    def to_json(self) -> dict[str, Any]:
        """`accepted`, and `records` (uuids), `tokens`, `generated` and `reasons`, or `refusal` and `diagnoses`."""
        said: dict[str, Any] = {"session_id": self.session_id, "mode": self.mode, "accepted": self.delivery is not None}
        if self.delivery is not None:
            lineage, number = self.delivery.lineage, self.delivery.chains[0]
            calls = [lineage.forest.calls[index] for index in lineage.chains[number].calls]
            return said | {
                "records": [call.uuid for call in calls],
                "tokens": calls[-1].prompt_tokens + calls[-1].generation_tokens,
                "generated": sum(call.generation_tokens for call in calls),
                "reasons": list(lineage.chain_verdicts[number].reasons),
            }
        found = [asdict(each) | {"explanation": each.cause.explanation} for each in self.diagnoses]
        return said | {"refusal": refusal_json(self.refusal), "diagnoses": found}


def judge(source: SessionSource, session_id: str, mode: Mode) -> Judgement:
    """Read a session once, and once more for the reasons if it is refused. Raises nothing."""
    try:
        return Judgement(session_id, mode, deliver(source.session(session_id), mode))
    except (Refusal, NothingToTrain, SessionIncomplete) as refusal:
        try:
            lineage = build_lineage(source.session(session_id))
        except RolloutError:  # what is no session has no lineage
            lineage = None
        return Judgement(session_id, mode, refusal=refusal, lineage=lineage)
    except SourceError as error:
        return Judgement(session_id, mode, refusal=error)


def print_verdicts(
    source: SessionSource,
    session_ids: Iterable[str],
    mode: Mode,
    terminal: Terminal,
    *,
    as_json: bool,
    key_env: str,
) -> tuple[int, int]:
    """Judge sessions and print each verdict at once; how many were judged, and how many of them accepted."""
    judged = accepted = 0
    for session_id in session_ids:
        judgement = judge(source, session_id, mode)
        judged += 1
        accepted += judgement.delivery is not None
        if as_json:
            terminal.write(encode(judgement.to_json()).decode())
        else:
            terminal.write(*_lines(judgement, terminal, key_env))
    return judged, accepted


def refusal_json(refusal: RolloutError | None) -> dict[str, Any]:
    """`code` and `message`, and of a broken rule what `Refusal.to_json` says besides."""
    if isinstance(refusal, Refusal | NothingToTrain | SessionIncomplete):
        return dict(refusal.to_json())
    return {"code": "unreadable", "message": str(refusal)}


def _lines(judgement: Judgement, terminal: Terminal, key_env: str) -> Iterator[str]:
    name = terminal.style(printable(judgement.session_id), bold=True)
    if judgement.delivery is not None:
        yield f"  {terminal.style('✓', fg='green')} {name}  {_delivered(judgement.delivery)}"
        return
    yield f"  {terminal.style('✗', fg='red', bold=True)} {name}"
    for number, text in enumerate(_reasons(judgement, key_env)):
        for line in terminal.wrap(printable(text), _INDENT):
            yield line if number == 0 else terminal.style(line, dim=True)


def _delivered(delivery: Delivery) -> str:
    lineage, number = delivery.lineage, delivery.chains[0]
    chain = lineage.chains[number]
    calls = [lineage.forest.calls[index] for index in chain.calls]
    tokens = calls[-1].prompt_tokens + calls[-1].generation_tokens
    generated = sum(call.generation_tokens for call in calls)
    text = f"{counted(len(calls), 'record')}, {tokens} tokens, {generated} generated"
    if len(calls) < len(lineage.forest.calls):
        text += f"; records {record_numbers(chain.calls)} of {len(lineage.forest.calls)}"
    reasons = lineage.chain_verdicts[number].reasons
    return text + (f"; {spelled(reasons)}" if reasons else "")


def _reasons(judgement: Judgement, key_env: str) -> Iterator[str]:
    """Why a session is refused, the reason first, then what helps to understand it."""
    refusal, lineage = judgement.refusal, judgement.lineage
    if isinstance(refusal, SourceError):
        yield told(refusal, key_env)
        return
    yield str(refusal)
    if isinstance(refusal, Refusal):
        yield f"rule {refusal.rule}: {refusal.rule.demand}"
    if lineage is None:
        return
    for fault in lineage.faults:
        if fault.name in str(refusal):
            continue
        yield f"cannot be read: {fault.name}: {fault.reason}"
    if not isinstance(refusal, Refusal) or refusal.rule is Rule.E4:
        yield f"its calls: {account_text(lineage)}"
        yield from failed(lineage)
    if isinstance(refusal, Refusal) and refusal.record is not None:
        yield from _company(lineage, refusal.record)
    for diagnosis in judgement.diagnoses:
        yield f"record {diagnosis.call} {'; '.join(diagnosed(diagnosis))}"
    if judgement.mode == "strict" and (otherwise := _in_lineage_mode(lineage)):
        yield otherwise


def _company(lineage: Lineage, record: int) -> Iterator[str]:
    """What kind of calls a record and the one before it are, where that is why they do not fit together."""
    for index in range(max(0, record - 1), record + 1):
        if text := ROLES.get(lineage.roles[index]):
            yield f"record {index} is {text}"
    for step in lineage.attempts:
        if record in step.calls[1:]:
            yield f"record {record} has the prompt of record {step.calls[0]}: a retry, or a second sample"


def _in_lineage_mode(lineage: Lineage) -> str | None:
    try:
        check_account(lineage)
        (main,) = trainable_chains(lineage, "main")
    except RolloutError:
        return None
    numbers = record_numbers(lineage.chains[main].calls)
    return f"--mode lineage accepts it: the main chain is records {numbers} of {len(lineage.forest.calls)}"
