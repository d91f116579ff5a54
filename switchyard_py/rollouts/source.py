"""Where a session is read from: a running proxy, a capture directory, or an envelope in memory or in a file."""

from __future__ import annotations

import gzip
import io
import os
import re
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from switchyard_py.rollouts.envelope import EnvelopeReader, check_envelope
from switchyard_py.rollouts.refusal import SourceError
from switchyard_py.store import Fault, SessionReader
from switchyard_py.strictjson import decode

CHUNK_BYTES = 1 << 16
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_GZIP = b"\x1f\x8b"
_DELIVERED = ("valid", "invalid", "lost")


class Session(ABC):
    """A session to be read once, record by record.

    `session_id` is known from the first record on. `accounting` (calls by fate, after `begun`, their sum) is known
    after the last, and null where the source has none; `faults`, the files that cannot be served, only where the
    source is a capture directory: those met so far, where the records were not read to the end. So are `failures`,
    the reasons of failed calls by uuid.
    """

    def __init__(self, session_id: str | None) -> None:
        self._session_id = session_id
        self.accounting: Mapping[str, int] | None = None
        self.faults: Sequence[Fault] = ()
        self.failures: Mapping[str, str] = {}

    @property
    def session_id(self) -> str:
        if self._session_id is None:
            raise ValueError("the id of the session is known when its first record was read")
        return self._session_id

    @abstractmethod
    def records(self) -> Generator[Any]:
        """The values of the records in call order.

        Raises SourceError when the session cannot be had and Refusal when it is not the envelope of this session
        (E1 to E3, or E4 for completions that are no list).
        """

    def missing(self, records: int) -> int:
        """How many delivered calls the session has beyond the number of records that were read of it."""
        if self.accounting is None:
            return 0
        return max(0, sum(self.accounting.get(fate, 0) for fate in _DELIVERED) - records)

    def _keep(self, rest: Mapping[str, Any]) -> None:
        """Keep what the envelope says beside the records."""
        accounting = rest.get("accounting")
        if isinstance(accounting, dict):
            self.accounting = {key: count for key, count in accounting.items() if type(count) is int}


def read_session(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any] | SessionReader,
    session_id: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    settled: float = 0,
    timeout_seconds: float = 60.0,
) -> Session:
    """The session of a source. Nothing is read before its records are.

    Args:
        source: the base URL of a proxy (`http://host:4000`), the directory that a proxy captures into or a reader of
            it, the file of an envelope (JSON, maybe compressed by gzip), or the envelope itself, as bytes or decoded.
        session_id: needed for a URL or directory; an envelope is else taken for the session it says.
        headers: for a URL, such as the key of a reader.
        settled: for a URL, how many seconds the proxy waits for open calls to end.
        timeout_seconds: for a URL, the time for the whole retrieval, beyond `settled`: looked at with every piece that
            arrives, and the longest wait for one.

    Raises:
        SourceError: the source is no such thing, or the id is missing.
    """
    if isinstance(source, Mapping):
        return _Decoded(source, session_id)
    if isinstance(source, bytes):
        return _Encoded(source, session_id)
    if isinstance(source, SessionReader):
        return _Stored(source, _given(session_id))
    text = os.fspath(source)
    if text.startswith(("http://", "https://")):
        return _Proxy(text, _given(session_id), headers or {}, settled, timeout_seconds)
    path = Path(text)
    if path.is_dir():
        return _Stored(SessionReader(path, None), _given(session_id))
    if not path.is_file():
        raise SourceError(f"{text} is no directory, no file and no http:// address")
    return _File(path, session_id)


def _given(session_id: str | None) -> str:
    if not session_id:
        raise SourceError("give the id of the session, because the source has many")
    try:
        session_id.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{session_id!r} is the id of no session: it has lone surrogates") from None
    return session_id


class _Decoded(Session):
    """An envelope in memory."""

    def __init__(self, envelope: Mapping[str, Any], session_id: str | None) -> None:
        super().__init__(session_id)
        self._envelope = envelope

    def records(self) -> Generator[Any]:
        envelope = check_envelope(dict(self._envelope), self._session_id)
        self._session_id = envelope["session_id"]
        yield from envelope["completions"]
        self._keep(envelope)


class _Chunked(Session):
    """An envelope that arrives in pieces."""

    @abstractmethod
    def _chunks(self) -> Generator[bytes]: ...

    def records(self) -> Generator[Any]:
        with closing(self._chunks()) as chunks:
            reader = EnvelopeReader(chunks, self._session_id)
            for record in reader.records():
                self._session_id = reader.session_id
                yield record
                del record  # so that it and the next one are not in memory together
        self._session_id = reader.session_id
        self._keep(reader.rest)


class _Encoded(_Chunked):
    """The bytes of an envelope."""

    def __init__(self, envelope: bytes, session_id: str | None) -> None:
        super().__init__(session_id)
        self._envelope = envelope

    def _chunks(self) -> Generator[bytes]:
        for start in range(0, len(self._envelope), CHUNK_BYTES):
            yield self._envelope[start : start + CHUNK_BYTES]


class _File(_Chunked):
    """A file with an envelope."""

    def __init__(self, path: Path, session_id: str | None) -> None:
        super().__init__(session_id)
        self._path = path

    def _chunks(self) -> Generator[bytes]:
        try:
            with self._path.open("rb") as raw:
                compressed = raw.read(len(_GZIP)) == _GZIP
                raw.seek(0)
                content: io.BufferedIOBase = gzip.GzipFile(fileobj=raw) if compressed else raw
                while chunk := content.read(CHUNK_BYTES):
                    yield chunk
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self._path} cannot be read: {error}") from error


class _Stored(Session):
    """A session in the directory that proxies capture into, as it is at this moment."""

    def __init__(self, reader: SessionReader, session_id: str) -> None:
        super().__init__(session_id)
        self._reader = reader

    def records(self) -> Generator[Any]:
        try:
            page = self._reader.completions(self.session_id)
            if page is None:
                raise SourceError(f"there is no session {self.session_id!r} in {self._reader.directory}")
            try:
                yield from page.values()
                self.accounting = page.accounting()
                self.failures = page.failures()
            finally:
                self.faults = page.faults
        except (OSError, ValueError) as error:
            raise SourceError(
                f"the session {self.session_id!r} in {self._reader.directory} cannot be read: {error}"
            ) from error


class _Proxy(_Chunked):
    """A session of a running proxy."""

    def __init__(
        self, base_url: str, session_id: str, headers: Mapping[str, str], settled: float, timeout_seconds: float
    ) -> None:
        super().__init__(session_id)
        self._base_url = base_url.rstrip("/")
        self._headers = headers
        self._settled = settled
        self._timeout = timeout_seconds

    def _chunks(self) -> Generator[bytes]:
        import httpx  # only who reads from a proxy needs it

        url = f"{self._base_url}/v1/sessions/{quote(self.session_id, safe='')}/completions"
        # A user name and password in the address are not repeated.
        address = urlsplit(self._base_url).netloc.rpartition("@")[2]
        deadline = time.monotonic() + self._timeout + self._settled
        query = {"settled": f"{self._settled:g}"} if self._settled else {}
        timeout = httpx.Timeout(self._timeout, read=self._timeout + self._settled)
        try:
            with (
                # Reading certificates takes longer than reading a small session.
                httpx.Client(timeout=timeout, trust_env=False, verify=url.startswith("https://")) as client,
                client.stream("GET", url, params=query, headers=dict(self._headers)) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise refused_by(address, response.status_code, response.read())
                for chunk in response.iter_bytes():
                    if time.monotonic() > deadline:
                        raise SourceError(f"{address} took more than {self._timeout:g} s to send the session")
                    yield chunk
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise unreached(address, error) from error


def unreached(address: str, error: Exception) -> SourceError:
    """What to raise for a proxy that gave no answer, or none to its end."""
    # The number that httpx puts before the reason says nothing more.
    reason = _ERROR_NUMBER.sub("", str(error)) or type(error).__name__
    return SourceError(f"{address} cannot be read: {reason}")


def refused_by(address: str, status: int, body: bytes) -> SourceError:
    """What to raise for the answer of a proxy that is not 200: its status, and what it says."""
    try:
        said = decode(body)
    except ValueError:
        said = None
    detail = said.get("detail") or said.get("error") if isinstance(said, dict) else None
    if isinstance(detail, dict):
        detail = detail.get("message")
    told = detail or " ".join(body[:200].decode(errors="replace").split()) or "nothing"
    return SourceError(f"{address} answers {status}: {told}", status)
