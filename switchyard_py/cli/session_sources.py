"""Where `switchyard sessions` reads: a directory of records, also while it is written to, or a running proxy."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import httpx
import typer

from switchyard_py.cli.options import FALLBACK_LOG_DIR, GlobalOptions, end, read_bundle
from switchyard_py.rollouts import Session, SourceError, read_session
from switchyard_py.rollouts.source import refused_by, unreached
from switchyard_py.store import SessionReader, SessionSummary

PAGE = 1000
# A large session takes a while over a slow line, and somebody at a terminal can interrupt.
PATIENCE_SECONDS = 600.0


class SessionSource(Protocol):
    """What can be read. All methods raise SourceError for what cannot be had."""

    left_out: list[str]
    """Why `summaries` left out sessions that are there; a proxy tells its log instead."""

    def summaries(self) -> Iterator[SessionSummary]:
        """All sessions, by their first call."""
        ...

    def summary(self, session_id: str) -> SessionSummary:
        """One of them."""
        ...

    def session(self, session_id: str) -> Session:
        """A session, to be read once."""
        ...


class StoredSessions:
    """The sessions of a directory."""

    def __init__(self, directory: Path) -> None:
        self.left_out: list[str] = []
        self._reader = SessionReader(directory, None)
        if not directory.is_dir():
            raise SourceError(f"there is no directory {directory}: name one with --dir DIR, or a proxy with --url URL")
        if not (directory / "sessions").is_dir():
            parent = directory.absolute().parent
            hint = f"; did you mean {parent}?" if directory.absolute().name == "sessions" else ""
            raise SourceError(f"{directory} is no directory of records: it has no directory sessions in it{hint}")

    def summaries(self) -> Iterator[SessionSummary]:
        log, handler = logging.getLogger("switchyard_py.store"), _LeftOut(self.left_out)
        log.addHandler(handler)
        try:
            yield from self._reader.sessions()
        except OSError as error:
            raise SourceError(f"{self._reader.directory} cannot be read: {error.strerror}") from error
        finally:
            log.removeHandler(handler)

    def summary(self, session_id: str) -> SessionSummary:
        try:
            found = self._reader.summary(session_id)
        except (OSError, ValueError) as error:
            raise SourceError(
                f"the session {session_id!r} in {self._reader.directory} cannot be read: {error}"
            ) from error
        if found is None:
            raise SourceError(f"there is no session {session_id!r} in {self._reader.directory}")
        return found

    def session(self, session_id: str) -> Session:
        return read_session(self._reader, session_id)


class ServedSessions:
    """The sessions of a running proxy."""

    def __init__(self, url: str, key: str | None) -> None:
        self.left_out: list[str] = []
        try:
            parts = urlsplit(url)
            wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        except ValueError:
            wrong = True
        if wrong:
            # It is not repeated, because it may hold a password.
            raise SourceError("what --url gives is no address of a proxy: write it as http://127.0.0.1:4000")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise SourceError("the reader key has characters that no key has")
        self._url = url.rstrip("/")
        # A user name and password in the address are not repeated.
        self._shown = parts.netloc.rpartition("@")[2]
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def summaries(self) -> Iterator[SessionSummary]:
        query: dict[str, str] = {"limit": str(PAGE)}
        while True:
            page = self._get("/v1/sessions", query)
            try:
                summaries = [_summary(each) for each in page["sessions"]]
            except (KeyError, TypeError):
                raise self._no_proxy() from None
            yield from summaries
            if not page.get("next_cursor"):
                return
            query["cursor"] = page["next_cursor"]

    def summary(self, session_id: str) -> SessionSummary:
        try:
            path = f"/v1/sessions/{quote(session_id, safe='')}"
        except UnicodeEncodeError:
            raise SourceError(f"{session_id!r} is the id of no session: it has lone surrogates") from None
        try:
            return _summary(self._get(path, {}))
        except TypeError:
            raise self._no_proxy() from None

    def session(self, session_id: str) -> Session:
        return read_session(self._url, session_id, headers=self._headers, timeout_seconds=PATIENCE_SECONDS)

    def _get(self, path: str, query: dict[str, str]) -> Any:
        try:
            # No proxy of the environment lies on the way to this one.
            with httpx.Client(
                timeout=PATIENCE_SECONDS, trust_env=False, verify=self._url.startswith("https")
            ) as client:
                response = client.get(f"{self._url}{path}", params=query, headers=self._headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise unreached(self._shown, error) from error
        if response.status_code != httpx.codes.OK:
            raise refused_by(self._shown, response.status_code, response.content)
        try:
            return response.json()
        except ValueError:
            raise self._no_proxy() from None

    def _no_proxy(self) -> SourceError:
        return SourceError(f"{self._shown} does not answer as a proxy does")


@contextmanager
def opened(context: typer.Context, url: str | None, directory: Path | None, key_env: str) -> Iterator[SessionSource]:
    """The source that the options name. Ends the command with one line when it cannot be read, and tells at the end
    what was left out on the way."""
    if url is not None and directory is not None:
        context.fail("--url and --dir contradict each other: give one of them")
    # What the store warns of, commands tell in their own way.
    logging.getLogger("switchyard_py").addHandler(logging.NullHandler())
    try:
        source: SessionSource = (
            ServedSessions(url, os.environ.get(key_env, "").strip() or None)
            if url is not None
            else StoredSessions(directory or _usual_directory(context))
        )
        yield source
    except SourceError as error:
        end(told(error, key_env))
    for text in source.left_out:
        typer.echo(f"warning: {text}", err=True)


def _usual_directory(context: typer.Context) -> Path:
    options: GlobalOptions = context.obj
    if options.rl_log_dir is None and options.routing_profiles is not None:
        bundle = read_bundle(context, options.routing_profiles)
        return bundle.capture.log_dir or FALLBACK_LOG_DIR
    return options.rl_log_dir or FALLBACK_LOG_DIR


def told(error: SourceError, key_env: str) -> str:
    """What to say of a source that cannot be read."""
    if error.status in (401, 403):
        advice = f"put a reader key into the variable {key_env}, or name another one with --reader-key-env"
        return f"{str(error).rstrip('.')}; {advice}"
    return str(error)


class _LeftOut(logging.Handler):
    """Keeps what the store says of sessions that it leaves out; faulty files are told of with their session."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("session"):
            self._texts.append(record.getMessage())


def _summary(answer: Any) -> SessionSummary:
    """What a proxy says of a session. Raises TypeError when it is something else."""
    if not isinstance(answer, dict) or not isinstance(answer.get("accounting"), dict):
        raise TypeError
    known: dict[str, Any] = {field.name: answer.get(field.name) for field in fields(SessionSummary)}
    return SessionSummary(**known | {"cursor": ""})
