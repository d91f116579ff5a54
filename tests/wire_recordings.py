"""The exchanges recorded from a real vLLM 0.32, as Python values.

The engine ran on a CPU with a tiny Qwen3 model, of random weights in most recordings and trained to call a tool in
`trained_*` and `mt_*`. `tests/wire` holds one JSON file an exchange, and beside it the verbatim bytes of the body where
it was a stream (`abort_*_stream` and `engine_death_stream` lack events in the middle). JSON bodies were written anew in
compact form: their values are as received, their spacing is not.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WIRE = Path(__file__).parent / "wire"


@dataclass(frozen=True)
class Recording:
    """One exchange with `/v1/chat/completions`: the request's parsed body, the reply's status and bytes."""

    name: str
    request_headers: dict[str, str]
    request_body: Any
    status: int
    body: bytes
    is_stream: bool

    @property
    def captured(self) -> bool:
        """Whether token ids and log-probabilities were asked for and generated: a reply a record can be made of."""
        asked = self.request_body
        return (
            self.status == 200
            and bool(asked.get("return_token_ids") and asked.get("logprobs"))
            and asked.get("include_reasoning") is not False
        )


@cache
def recordings() -> list[Recording]:
    """All recordings, by name."""
    return [_load(path) for path in sorted(WIRE.glob("*.json"))]


def recording(name: str) -> Recording:
    return _load(WIRE / f"{name}.json")


def _load(path: Path) -> Recording:
    exchange = json.loads(path.read_bytes())
    request, response = exchange["request"], exchange["response"]
    stream_file = response.get("body_file")
    return Recording(
        name=path.stem,
        request_headers=request["headers"],
        request_body=request["body"],
        status=response["status"],
        body=(
            (WIRE / stream_file).read_bytes()
            if stream_file
            else json.dumps(response["body"], separators=(",", ":"), ensure_ascii=False).encode()
        ),
        is_stream=stream_file is not None,
    )
