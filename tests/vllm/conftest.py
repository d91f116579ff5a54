"""A real vLLM on this machine's CPU, and proxies in front of it.

`make test-vllm` installs it and runs this directory; without it every test here skips. The model, `tiny-qwen3` beside
this file, is a Qwen3 of 230,000 parameters, trained just long enough to think, greet and call a weather tool.
"""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_proxy import RunningProxy, StartProxy, bundle, running_proxy

LOG_PROB_ERROR = "log_prob_error"
"""Property of a test that compared log-probs: the largest difference it found."""

HERE = Path(__file__).parent
# Three Python processes of eight seconds' imports each; twice that on a busy machine.
START_SECONDS = 180
STOP_SECONDS = 30
# The first call compiles, for half a minute where nothing is cached.
CALL_SECONDS = 120


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how well the captured log-probs were confirmed."""
    reports = terminalreporter.getreports("passed")
    errors = [value for report in reports for name, value in report.user_properties if name == LOG_PROB_ERROR]
    if errors:
        terminalreporter.write_line(
            f"log-probs of {len(errors)} generations confirmed, largest difference {max(errors):.1e}"
        )


@pytest.fixture(scope="session")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root of a running vLLM that serves `tiny`, warmed up. Only this test session uses it."""
    venv = os.environ.get("SWITCHYARD_VLLM_VENV")
    if not venv:
        pytest.skip("SWITCHYARD_VLLM_VENV names no installed vLLM: use `make test-vllm`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with log.open("wb") as out:
        command = [str(HERE / "serve.sh"), venv, str(port)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_until_healthy(url, process, log)
        hello = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
        with httpx.Client(base_url=url, timeout=CALL_SECONDS, trust_env=False) as client:
            client.post("/v1/chat/completions", json=hello).raise_for_status()
        yield url
    finally:
        _stop(process)


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    pytest.fail("vLLM does not start:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    # Engine and worker follow the server by themselves, unless it was killed or they hang.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
async def vllm(vllm_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to vLLM without a proxy."""
    async with httpx.AsyncClient(base_url=vllm_url, timeout=CALL_SECONDS, trust_env=False) as client:
        yield client


@pytest.fixture
async def proxy(vllm_url: str, tmp_path: Path) -> AsyncIterator[StartProxy]:
    """`await proxy(stream_whitespace="as_engine")` starts a proxy whose target is `tiny` with the settings given."""
    async with AsyncExitStack() as stack:

        async def start(**target: Any) -> RunningProxy:
            given = bundle(f"{vllm_url}/v1", target={"model": "tiny", **target})
            running = await stack.enter_async_context(running_proxy(given, tmp_path / "rl_data"))
            running.client.timeout = httpx.Timeout(CALL_SECONDS)
            return running

        yield start


@pytest.fixture
def log_prob_error(
    vllm: httpx.AsyncClient, record_property: Callable[[str, object], None]
) -> Callable[[list[int], dict[str, Any]], Awaitable[float]]:
    """`await log_prob_error(prompt, choice)`: the largest difference between a choice's log-probs and a second opinion.

    vLLM reads prompt and generation as one prompt and says how probable it finds each of its tokens.
    """

    async def measure(prompt: list[int], choice: dict[str, Any]) -> float:
        ids, log_probs = choice["generation_token_ids"], choice["generation_log_probs"]
        body = {"model": "tiny", "prompt": prompt + ids, "max_tokens": 1, "prompt_logprobs": 0}
        response = await vllm.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        opinions = response.json()["choices"][0]["prompt_logprobs"][len(prompt) :]
        found = [opinion[str(token)]["logprob"] for token, opinion in zip(ids, opinions, strict=True)]
        error = max(abs(one - other) for one, other in zip(found, log_probs, strict=True))
        record_property(LOG_PROB_ERROR, error)
        return float(error)

    return measure


@pytest.fixture
def running_calls(vllm: httpx.AsyncClient) -> Callable[[], Awaitable[int]]:
    """`await running_calls()`: how many calls vLLM is generating for."""

    async def count() -> int:
        found = re.search(r"^vllm:num_requests_running\{.*\} (\S+)$", (await vllm.get("/metrics")).text, re.MULTILINE)
        assert found
        return int(float(found[1]))

    return count
