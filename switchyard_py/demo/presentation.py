"""How the demonstration looks: 80 columns, colours where they can be seen, plain lines elsewhere.

Nothing moves the cursor, so the output of a terminal and that of a pipe differ in colours and pace only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import typer

from switchyard_py import __version__
from switchyard_py.demo.claims import Claim, Evidence
from switchyard_py.demo.conversation import Fragment, Part, Reply
from switchyard_py.demo.script import MODEL

BAR_COLUMNS = 64
RELEASED = {"fg": "green", "bold": True}
_STYLES: dict[Part, dict[str, Any]] = {"reasoning": {"dim": True}, "answer": {}, "tool call": {"fg": "cyan"}}


class Presentation:
    """Writes to `stream`; everything is on its way when a method returns."""

    def __init__(self, stream: TextIO, *, colours: bool) -> None:
        self._stream = stream
        self._colours = colours
        self._part: Part | None = None
        self._space = ""

    def opening(self, engine: str, proxy: str, session: str) -> None:
        """Who plays: the URLs of engine and proxy, and the session."""
        title = f"{self._style('switchyard', bold=True)} {__version__}"
        self._lines(
            "",
            f"  {title}   a call with a tool, recorded token by token",
            "",
            f"  engine   {self._style(f'{engine}/v1', fg='cyan')}   simulated, no GPU needed",
            f"  proxy    {self._style(f'{proxy}/v1', fg='cyan')}   what the agent is pointed at",
            f"  session  {session}",
        )

    def asked(self, call: int, role: str, text: str) -> None:
        """What the agent sends that is new."""
        self._lines("", f"  {self._style(f'call {call}', bold=True)}   {role:11}{text}")

    def heard(self, fragment: Fragment) -> None:
        """A piece of the reply, the moment it came."""
        if fragment.part != self._part:
            # Engines put blank lines between the parts of a reply.
            if not fragment.text.strip():
                return
            self._end_part()
            self._write(f"           {fragment.part:11}")
            self._part = fragment.part
        text = self._space + fragment.text.replace("\n", " ")
        # White space waits for what follows it: none is left at the end of a line.
        shown = text.rstrip()
        self._space = text[len(shown) :]
        style = RELEASED if fragment.released else _STYLES[fragment.part]
        self._write(self._style(shown, **style) if shown else "")

    def broke_off(self) -> None:
        """Nothing more comes of a reply; says nothing after `ended`."""
        if self._part is not None:
            self._write("\n")
        self._part, self._space = None, ""

    def ended(self, reply: Reply) -> None:
        """What the end of a reply was waiting for."""
        self._end_part()
        what = "the end of the tool call" if reply.tool_calls else "the end of the reply"
        if reply.recorded_at_tail:
            text = self._style(f"{what}, now that the record is on disk", fg="green")
        else:
            text = self._style(f"{what}, although no record is on disk", fg="red")
        self._lines(f"           {'released':11}{text}")

    def records(self, directory: Path, evidence: Evidence) -> None:
        """The records, and their tokens drawn to scale."""
        self._lines(
            "",
            f"  {self._style('records', bold=True)}  {directory}",
            self._style("    call  prompt  generated  valid  file", dim=True),
        )
        for call, record in enumerate(evidence.records, start=1):
            prompt, generated = (len(record[f"{of}_token_ids"] or ()) for of in ("prompt", "generation"))
            valid = self._style("yes  ", fg="green") if record["is_valid"] else self._style("no   ", fg="red")
            self._lines(f"    {call:>4}  {prompt:>6}  {generated:>9}  {valid}  {record['uuid']}.json")
        self._lines("", *self._bars(evidence.records), "")

    def verdicts(self, claims: Sequence[Claim]) -> None:
        """Which claims are true."""
        for claim in claims:
            if claim.fault is None:
                self._lines(f"  {self._style('✓', fg='green')} {claim.text}")
            else:
                self._lines(f"  {self._style('✗', fg='red', bold=True)} {claim.text}:", f"      {claim.fault}")

    def suggestions(self, engine: str, proxy: str, session: str) -> None:
        """Commands that work while engine and proxy run."""
        self._lines(
            "",
            f"  {self._style('try', bold=True)}      engine and proxy run until Ctrl-C",
            "",
            f"  curl -s {proxy}/v1/sessions/{session}/completions",
            f"  curl -sN {proxy}/v1/chat/completions \\",
            "    -H 'content-type: application/json' -H 'proxy_x_session_id: mine' \\",
            f"""    -d '{{"model": "{MODEL}", "stream": true,""",
            """         "messages": [{"role": "user", "content": "Say hello"}]}'""",
            f"  curl -s {proxy}/v1/sessions/mine/completions",
            f"  curl -s {engine}/simulator/requests",
            "",
        )

    def ways_on(self) -> None:
        """Commands for afterwards."""
        width = 31
        self._lines(
            "",
            f"  {self._style('next', bold=True)}",
            "",
            f"  {'switchyard demo --keep':{width}} the same, left running for curl",
            f"  {'switchyard simulate':{width}} this engine on port 8000, for your own agent",
            f"  {'switchyard check FILE --probe':{width}} does your vLLM give what capture needs?",
            f"  {'switchyard -c FILE -- serve':{width}} the proxy in front of it",
            "",
        )

    def _bars(self, records: Sequence[dict[str, Any]]) -> list[str]:
        """One bar a record: what was read and what was generated, in the order of the tokens."""
        spans: list[list[tuple[str, int]]] = []
        span: list[tuple[str, int]] = []
        ids: list[int] = []
        for record in records:
            prompt, generation = record["prompt_token_ids"], record["generation_token_ids"]
            if not prompt or not generation:
                return []
            if prompt[: len(ids)] != ids:
                span, ids = [], []
            span = [*span, ("read", len(prompt) - len(ids)), ("generated", len(generation))]
            ids = [*prompt, *generation]
            spans.append(span)
        if not spans:
            return []
        longest = max(sum(count for _, count in span) for span in spans)
        lines = [f"    call {call}  {self._bar(span, longest)}" for call, span in enumerate(spans, start=1)]
        legend = f"{self._style('─', dim=True)} read   {self._style('━', fg='green')} generated"
        return [*lines, f"            {legend}"]

    def _bar(self, span: list[tuple[str, int]], longest: int) -> str:
        bar, position = "", 0
        for kind, count in span:
            start, position = position, position + count
            columns = round(position / longest * BAR_COLUMNS) - round(start / longest * BAR_COLUMNS)
            bar += (
                self._style("━" * columns, fg="green") if kind == "generated" else self._style("─" * columns, dim=True)
            )
        return bar

    def _end_part(self) -> None:
        if self._part is not None:
            self._write(self._style(")", **RELEASED) + "\n" if self._part == "tool call" else "\n")
        self._part, self._space = None, ""

    def _style(self, text: str, **style: Any) -> str:
        return typer.style(text, **style) if self._colours else text

    def _lines(self, *lines: str) -> None:
        self._write("".join(f"{line}\n" for line in lines))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
