"""What it costs to read a long session into its chains: `PYTHONPATH=tests .venv/bin/python -m benchmarks.rollouts`.

A session of 1,000 calls whose prompts grow to 60,000 tokens, about 30 million ids in all, is read from the file of its
envelope. The yardstick for processor time is `orjson.loads` of each of its records, nothing else; the peak of memory is
what Python had at most, beyond what it has when it is done, and the yardstick for it is the largest record.
"""

import argparse
import random
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from switchyard_py.rollouts import Lineage, Session, accept, build_lineage, read_session

VOCABULARY = 150_000
GENERATION = 20
MOST_TIMES_LOADS = 4.0
MOST_TIMES_RECORD = 12.0


@dataclass(frozen=True)
class Written:
    """A session in a file, the processor time that `orjson.loads` takes for its records, the bytes of the largest."""

    path: Path
    loads: float
    largest: int


def write_session(path: Path, calls: int, tokens: int) -> Written:
    """Write the envelope of one linear conversation."""
    loads, largest = 0.0, 0
    with path.open("wb") as file:
        file.write(b'{"schema_version":1,"session_id":"long","completions":[')
        for number, record in enumerate(_records(calls, tokens)):
            text = orjson.dumps(record)
            largest = max(largest, len(text))
            started = time.process_time()
            orjson.loads(text)
            loads += time.process_time() - started
            file.write(b"," * (number > 0) + text)
        file.write(b"]}")
    return Written(path, loads, largest)


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
            "uuid": f"call-{call}",
            "session_id": "long",
            "parent_session_id": None,
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


def measure(name: str, read: Callable[[Session], Lineage], written: Written) -> None:
    """Read the session twice, once for the time and once for the memory, and print both."""
    started = time.process_time()
    lineage = read(read_session(written.path))
    seconds = time.process_time() - started
    assert len(lineage.chains) == 1
    ids = sum(call.prompt_tokens + call.generation_tokens for call in lineage.forest.calls)
    print(f"{name}: {ids / 1e6:.1f} million ids in {seconds:.2f} s, {seconds / written.loads:.2f} times orjson.loads")
    del lineage
    tracemalloc.start()
    results = [read(read_session(written.path))]
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    results.clear()
    beyond = peak - after
    print(f"  result {after / 1e6:.1f} MB; beyond it {beyond / 1e6:.1f} MB, ", end="")
    print(f"{beyond / written.largest:.1f} times the largest record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=60_000, help="ids of the last prompt and its generation")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        written = write_session(Path(directory) / "envelope.json", options.calls, options.tokens)
        size = written.path.stat().st_size
        print(f"{options.calls} calls, {size / 1e6:.0f} MB, largest record {written.largest:,} bytes;")
        print(f"orjson.loads of its records takes {written.loads:.2f} s")
        print(f"bars: {MOST_TIMES_LOADS:g} times orjson.loads, {MOST_TIMES_RECORD:g} times the largest record")
        for name, read in (("lineage", build_lineage), ("strict", accept)):
            measure(name, read, written)


if __name__ == "__main__":
    main()
