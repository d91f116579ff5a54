"""The calls of a session drawn as the forest that their tokens make, with what is to be known of each."""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from switchyard_py.cli.terminal import Terminal, printable
from switchyard_py.rollouts import Call, Chain, Diagnosis, Lineage, Role, Verdict

_INDENT = " " * 8
_MOST_REASONS = 5
ROLES = {
    Role.SUBAGENT: "the call of a sub-agent",
    Role.SIDE: "beside the turns: it has no tools while others have, or its agent says so",
}
"""What the roles mean that are not the agent's own turns."""


def print_session(lineage: Lineage, terminal: Terminal) -> None:
    """Print the account, the tree, the chains, and which one is the main one."""
    drawing = _Drawing(lineage, terminal)
    terminal.write("", *drawing.heading(), "", *drawing.tree(), *drawing.chains(), "", *drawing.main(), "")


class _Drawing:
    def __init__(self, lineage: Lineage, terminal: Terminal) -> None:
        self._lineage = lineage
        self._terminal = terminal
        self._calls = lineage.forest.calls
        main = lineage.main.chain
        self._main = set(() if main is None else lineage.chains[main].calls)
        self._superseded = {index: step.kept for step in lineage.attempts for index in step.superseded}
        self._undecided = {index for step in lineage.attempts if step.undecided for index in step.calls}
        self._continued = {lineage.forest.parent(call.index) for call in self._calls}
        self._diagnoses = {diagnosis.call: diagnosis for diagnosis in lineage.forest.diagnoses}
        agents = dict.fromkeys(call.agent for call in self._calls)
        # Ids of agents are long: a letter stands for each, where there are several.
        self._letters = dict(zip(agents, _letters(), strict=False)) if len(agents) > 1 else {}

    def heading(self) -> Iterator[str]:
        lineage, style = self._lineage, self._terminal.style
        yield f"  {style(printable(lineage.session_id), bold=True)}"
        if lineage.parent_session_id:
            yield f"  child of the session {printable(lineage.parent_session_id)}"
        yield f"  calls: {account_text(lineage)}"
        for text in failed(lineage):
            yield from self._terminal.wrap(printable(text), "    ")
        if (lineage.accounting or {}).get("open"):
            yield style("  calls are still open: this is how it looks now", fg="yellow")
        if lineage.missing:
            text = f"{counted(lineage.missing, 'record')} of delivered calls cannot be read"
            yield style(f"  {text}", fg="red")
        for fault in lineage.faults:
            for line in self._terminal.wrap(printable(f"{fault.name}: {fault.reason}"), "    "):
                yield style(line, fg="red")

    def tree(self) -> Iterator[str]:
        if not self._calls:
            yield "  no records"
            return
        drawn = list(self._drawn())
        apart = self._roots_apart([index for index, _ in drawn])
        width = max(4, *(len(glyphs) for _, glyphs in drawn))
        agents = " agent" if self._letters else ""
        heading = (
            f"  record {'tree':{width}} {'role':8} {'prompt':>6} {'reply':>5} {'finish':10} "
            f"{'at (s)':>8} {'took':>6}{agents}  state"
        )
        yield self._terminal.style(heading, dim=True)
        for index, glyphs in drawn:
            if index in apart:
                yield ""
            yield self._line(index, f"{glyphs:{width}}")
            yield from self._remarks(index)
        if self._letters:
            yield ""
            for agent, letter in self._letters.items():
                yield self._terminal.style(
                    f"  agent {letter}: {printable(agent) or 'the one that sends no ids'}", dim=True
                )

    def _drawn(self) -> Iterator[tuple[int, str]]:
        """The calls, each with what is drawn before it: one after the other where one continues the other, branches
        to the right of the call that they leave."""
        children: dict[int, list[int]] = defaultdict(list)
        roots: list[int] = []
        for call in self._calls:
            parent = self._lineage.forest.parent(call.index)
            (roots if parent is None else children[parent]).append(call.index)
        waiting = [(index, "", "") for index in reversed(roots)]
        while waiting:
            index, first, rest = waiting.pop()
            yield index, first + self._mark(index)
            if children[index]:
                trunk = next((child for child in children[index] if child in self._main), children[index][-1])
                waiting.append((trunk, rest, rest))
                branches = [child for child in children[index] if child != trunk]
                waiting += [(child, f"{rest}├─", f"{rest}│ ") for child in reversed(branches)]

    def _roots_apart(self, drawn: Sequence[int]) -> set[int]:
        """The roots that are drawn after an empty line: all but the first, and those of single calls in a row."""
        places = [place for place, index in enumerate(drawn) if self._lineage.forest.parent(index) is None]
        sizes = [end - start for start, end in pairwise([*places, len(drawn)])]
        return {drawn[place] for place, pair in zip(places[1:], pairwise(sizes), strict=True) if max(pair) > 1}

    def _mark(self, index: int) -> str:
        if not self._lineage.call_verdicts[index].trainable:
            return "✗"
        return "●" if index in self._main else "○"

    def _line(self, index: int, glyphs: str) -> str:
        call, style = self._calls[index], self._terminal.style
        colour = {"✗": "red", "●": "green"}.get(glyphs.rstrip()[-1])
        agent = f" {self._letters[call.agent]:5}" if self._letters else ""
        began, took = self._times(call)
        tokens = f"{call.prompt_tokens or '-':>6} {call.generation_tokens or '-':>5}"
        finish = printable(call.finish_reason or "-")
        return (
            f"  {index:>6} {style(glyphs, fg=colour)} {self._lineage.roles[index]:8} {tokens} {finish:10} "
            f"{began:>8} {took:>6}{agent}  {self._state(index)}"
        )

    def _times(self, call: Call) -> tuple[str, str]:
        """When it began, from the first call on, and how long it took; in seconds."""
        zero = next((each.started_at for each in self._calls if each.started_at), None)
        began = took = "-"
        if call.started_at and zero:
            began = f"+{(call.started_at - zero).total_seconds():.2f}"
        if call.started_at and call.finished_at:
            took = f"{(call.finished_at - call.started_at).total_seconds():.2f}"
        return began, took

    def _state(self, index: int) -> str:
        style = self._terminal.style
        if index in self._superseded:
            return style("retried", dim=True)
        verdict = self._lineage.call_verdicts[index]
        if not verdict.reasons:
            return style("valid", fg="green")
        return style(spelled(verdict.reasons), fg="yellow" if verdict.trainable else "red")

    def _remarks(self, index: int) -> Iterator[str]:
        call = self._calls[index]
        name = call.uuid or "it has no uuid"
        if call.lost:
            yield from self._remark("its answer went to the agent and could not be stored: nobody has its tokens")
        elif call.invalid_reasons:
            yield from self._remark(f"not valid: {spelled(call.invalid_reasons)} ({name})")
        elif call.flaw is not None:
            yield from self._remark(f"{call.flaw.rule}: {call.flaw.message} ({name})")
        link = self._lineage.forest.placements[index].link
        if link is not None and link.route_changed:
            yield from self._remark(f"it went to another route than the call before: {call.route}")
        if link is not None and link.tools_changed:
            yield from self._remark("it has other tools than the call before")
        if index in self._superseded:
            kept = self._superseded[index]
            numbers = " and ".join(map(str, kept))
            went_on = not self._continued.isdisjoint(kept)
            text = f"the agent went on with record {numbers}" if went_on else f"record {numbers} stands for it"
            yield from self._remark(f"its prompt was sent again, and {text}")
        if index in self._undecided:
            yield from self._remark("its prompt was answered more than once, and nothing says which answer was used")
        if index in self._diagnoses:
            for text in diagnosed(self._diagnoses[index]):
                yield from self._remark(text)

    def _remark(self, text: str) -> Iterator[str]:
        for line in self._terminal.wrap(printable(text), _INDENT):
            yield self._terminal.style(line, fg="yellow")

    def chains(self) -> Iterator[str]:
        if self._lineage.chains:
            yield ""
            yield self._terminal.style("  chain  role     records", dim=True)
        for number, (chain, verdict) in enumerate(zip(self._lineage.chains, self._lineage.chain_verdicts, strict=True)):
            yield from self._chain(number, chain, verdict)

    def _chain(self, number: int, chain: Chain, verdict: Verdict) -> Iterator[str]:
        leaf = self._calls[chain.leaf]
        generated = sum(self._calls[index].generation_tokens for index in chain.calls)
        tokens = f"{leaf.prompt_tokens + leaf.generation_tokens} tokens, {generated} generated"
        text = f"{record_numbers(chain.calls)}: {tokens}{self._after(chain)}"
        mark = "*" if number == self._lineage.main.chain else " "
        yield from self._terminal.wrap(text, f"  {number:>4}{mark}  {chain.role:8} ", " " * 18)
        yield " " * 18 + verdict_text(verdict, self._terminal)

    def _after(self, chain: Chain) -> str:
        """Which calls of the same agent come before the chain and are not in it."""
        if chain.predecessor is not None:
            return f"; continues chain {chain.predecessor} with a compacted history"
        parted = [index for index in chain.calls if index in self._diagnoses]
        if not parted:
            return ""
        before = self._diagnoses[parted[-1]].predecessor
        return f"; record {parted[-1]} continues record {before} without its tokens"

    def main(self) -> Iterator[str]:
        main = self._lineage.main
        named = "no main chain:" if main.chain is None else f"main chain: {main.chain} (*),"
        text = f"{named} {main.reason.explanation}"
        if main.candidates:
            text += f"; it may end with record {' or '.join(map(str, main.candidates))}"
        yield from self._terminal.wrap(text, "  ")


def account_text(lineage: Lineage) -> str:
    """What became of the calls of a session."""
    account = dict(lineage.accounting or {})
    begun = account.pop("begun", len(lineage.forest.calls))
    fates = ", ".join(f"{count} {fate}" for fate, count in account.items() if count)
    return f"{begun} begun" + (f", {fates}" if fates else "")


def failed(lineage: Lineage) -> Iterator[str]:
    """Why calls failed, the most common reasons first."""
    reasons = Counter(lineage.failures.values()).most_common()
    for reason, count in reasons[:_MOST_REASONS]:
        yield f"{count} failed: {reason}"
    if others := sum(count for _, count in reasons[_MOST_REASONS:]):
        yield f"{others} failed for other reasons"


def diagnosed(diagnosis: Diagnosis) -> Iterator[str]:
    """What a diagnosis says, in sentences."""
    where = "of what it generated" if diagnosis.in_generation else "of its prompt"
    yield (
        f"seems to continue record {diagnosis.predecessor}, but does not repeat its tokens: id {diagnosis.position}, "
        f"{where}, is {_ids(diagnosis.had)} there and {_ids(diagnosis.got)} here"
    )
    yield f"most likely cause: {diagnosis.cause.explanation}"


def verdict_text(verdict: Verdict, terminal: Terminal) -> str:
    """A verdict with its reasons."""
    if not verdict.trainable:
        return terminal.style(f"not trainable: {spelled(verdict.reasons)}", fg="red")
    reasons = f", with: {spelled(verdict.reasons)}" if verdict.reasons else ""
    return terminal.style("trainable", fg="green") + reasons


def _ids(ids: Sequence[int]) -> str:
    return f"{' '.join(map(str, ids[:4]))}{' ...' if len(ids) > 4 else ''}" if ids else "the end"


def record_numbers(calls: Sequence[int]) -> str:
    """The numbers of records, runs of them shortened."""
    runs: list[list[int]] = []
    for call in calls:
        if runs and call == runs[-1][-1] + 1:
            runs[-1].append(call)
        else:
            runs.append([call])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def spelled(reasons: Sequence[Any]) -> str:
    """Reason codes in words."""
    return printable(", ".join(str(reason).replace("_", " ") for reason in reasons))


def counted(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _letters() -> Iterator[str]:
    for number in range(len(string.ascii_lowercase) ** 2):
        first, second = divmod(number, len(string.ascii_lowercase))
        yield (string.ascii_lowercase[first - 1] if first else "") + string.ascii_lowercase[second]
