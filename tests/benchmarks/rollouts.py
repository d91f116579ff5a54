"""What it costs to read a long session into its chains: `PYTHONPATH=tests .venv/bin/python -m benchmarks.rollouts`.

A session of 1,000 calls whose prompts grow to 60,000 tokens, about 30 million ids in all, is read from the file of its
envelope and from a capture directory. The yardstick for processor time is `orjson.loads` of each of its records,
nothing else, taken anew before each reading; the peak of memory is what Python had at most, beyond what it has when it
is done, and the yardstick for it is the largest record.
"""

import argparse
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from switchyard_py.rollouts import Lineage, Session, accept, build_lineage, read_session
from switchyard_py.store import CallIntent, Writer

VOCABULARY = 150_000
GENERATION = 20
MOST_TIMES_LOADS = 4.0
MOST_TIMES_RECORD = 12.0
SESSION = "long"
STARTED_AT = "2026-03-01T12:00:00.000000+00:00"


@dataclass(frozen=True)
class Written:
    """A session in the file of an envelope and in a capture directory, the bytes of its records and of the largest."""

    envelope: Path
    directory: Path
    total: int
    largest: int

    @property
    def sources(self) -> dict[str, Path]:
        return {"the envelope": self.envelope, "the directory": self.directory}

    def loads(self) -> float:
        """The processor time that `orjson.loads` takes for the records."""
        seconds = 0.0
        for path in self.directory.glob("sessions/*/*.json"):
            text = path.read_bytes()
            started = time.process_time()
            orjson.loads(text)
            seconds += time.process_time() - started
        return seconds


def write_session(place: Path, calls: int, tokens: int) -> Written:
    """Write one linear conversation in both ways into the directory `place`."""
    total, largest = 0, 0
    envelope, directory = place / "envelope.json", place / "captured"
    with envelope.open("wb") as file, closing(Writer(directory)) as writer:
        file.write(b'{"schema_version":1,"session_id":"%b","completions":[' % SESSION.encode())
        for number, record in enumerate(_records(calls, tokens)):
            intent = writer.begin(
                CallIntent(
                    session_id=SESSION,
                    route="policy",
                    target="policy",
                    dialect="chat",
                    digest="",
                    started_at=STARTED_AT,
                )
            )
            text = orjson.dumps({**record, "uuid": intent.uuid})
            total, largest = total + len(text), max(largest, len(text))
            writer.commit(intent, text)
            file.write(b"," * (number > 0) + text)
        file.write(b"]}")
    return Written(envelope, directory, total, largest)


def _records(calls: int, tokens: int) -> Iterator[dict[str, Any]]:
    source = random.Random(1)
    ids = [source.randrange(VOCABULARY) for _ in range(tokens)]
    messages: list[dict[str, Any]] = []
    for call in range(calls):
        end = (call + 1) * (tokens // calls)
        arguments = orjson.dumps({"command": f"grep -rn step{call} src", "timeout": call}).decode()
        tool_call = {"id": f"call-{call}", "type": "function", "function": {"name": "run", "arguments": arguments}}
        result = {"role": "tool", "tool_call_id": f"call-{call - 1}", "content": f"output of step {call}: " + "x" * 120}
        messages.append(result if call else {"role": "user", "content": "Do the task."})
        messages.append({"role": "assistant", "content": None, "tool_calls": [tool_call]})
        yield {
            "schema_version": 1,
            "uuid": None,
            "session_id": SESSION,
            "parent_session_id": None,
            "captured_at": STARTED_AT,
            "request_id": f"chatcmpl-{call}",
            "model": "policy",
            "messages": messages,
            "tools": [{"id": "run", "description": "Run a command", "inputSchema": {"jsonSchema": {"type": "object"}}}],
            "tool_choice": "auto",
            "prompt_token_ids": ids[: end - GENERATION],
            "generation_token_ids": ids[end - GENERATION : end],
            "generation_log_probs": [-0.5] * GENERATION,
            "finish_reason": "tool_calls",
            "is_valid": True,
        }


def measure(name: str, read: Callable[[Session], Lineage], written: Written, source: Path, rounds: int) -> None:
    """Read the session some times for the time and once for the memory, and print both."""
    ratios = []
    for _ in range(rounds):
        loads = written.loads()
        started = time.process_time()
        lineage = read(read_session(source, SESSION))
        seconds = time.process_time() - started
        assert len(lineage.chains) == 1
        ids = sum(call.prompt_tokens + call.generation_tokens for call in lineage.forest.calls)
        del lineage
        ratios.append(seconds / loads)
        print(f"{name}: {ids / 1e6:.1f} million ids in {seconds:.2f} s, {ratios[-1]:.2f} times orjson.loads")
    tracemalloc.start()
    results = [read(read_session(source, SESSION))]
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    results.clear()
    beyond = peak - after
    print(f"  median {statistics.median(ratios):.2f} times orjson.loads")
    print(f"  result {after / 1e6:.1f} MB; beyond it {beyond / 1e6:.1f} MB, ", end="")
    print(f"{beyond / written.largest:.1f} times the largest record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=60_000, help="ids of the last prompt and its generation")
    parser.add_argument("--rounds", type=int, default=3, help="readings of each kind whose median counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        written = write_session(Path(directory), options.calls, options.tokens)
        print(f"{options.calls} calls, {written.total / 1e6:.0f} MB, largest record {written.largest:,} bytes")
        print(f"bars: {MOST_TIMES_LOADS:g} times orjson.loads, {MOST_TIMES_RECORD:g} times the largest record")
        for name, read in (("lineage", build_lineage), ("strict", accept)):
            for place, source in written.sources.items():
                measure(f"{name} from {place}", read, written, source, options.rounds)


if __name__ == "__main__":
    main()
