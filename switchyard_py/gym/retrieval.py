"""Fetch what the proxy captured of one run, within a deadline.

The agent has ended when this is asked, and its calls are on disk before their answers left the proxy, so one look is
enough; `settled` covers calls whose agent was killed a moment ago. A proxy that is just being restarted is waited for,
but never beyond the deadline.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx

from switchyard_py.gym.address import ProxyAddress

DEADLINE_SECONDS = 60.0
SETTLE_SECONDS = 30.0
RETRY_SECONDS = 0.5
MAX_REASON = 300


class RetrievalFailed(Exception):
    """The session could not be fetched. The text says what was asked of whom and what came back."""


async def retrieve_session(
    address: ProxyAddress,
    session_id: str,
    *,
    api_key: str | None = None,
    deadline: float = DEADLINE_SECONDS,
    settle: float = SETTLE_SECONDS,
) -> bytes:
    """The envelope of a session as JSON text, after waiting up to `settle` seconds for its calls to end.

    `api_key` is one of the proxy's keys for readers, where it asks for one. All of it takes at most `deadline` seconds:
    connections that fail and 503 are tried again until then, every other status but 200 is final. Raises
    RetrievalFailed.
    """
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        # The HTTP client would say so too, and repeat the key.
        raise RetrievalFailed("the key for readers has characters that no header can hold")
    url = f"{address}/v1/sessions/{quote(session_id, safe='')}/completions"
    # At least half of the deadline is left for the answer to arrive.
    query = {"settled": f"{min(settle, deadline / 2):g}"}
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    seen = "no answer"
    try:
        # No proxy of the environment lies on the way to this one, and http:// needs no certificates.
        client = httpx.AsyncClient(timeout=deadline, trust_env=False, verify=False)  # noqa: S501
        async with asyncio.timeout(deadline), client:
            while True:
                try:
                    answer = await client.get(url, params=query, headers=headers)
                except httpx.TransportError as error:
                    seen = f"{type(error).__name__} {error}".strip()
                else:
                    if answer.status_code == 200:
                        return answer.content
                    seen = f"HTTP {answer.status_code}: {answer.text[:MAX_REASON]}"
                    if answer.status_code != 503:
                        raise RetrievalFailed(f"GET {url}: {seen}")
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise RetrievalFailed(f"GET {url}: not complete within {deadline:g} s; last seen: {seen}") from None
