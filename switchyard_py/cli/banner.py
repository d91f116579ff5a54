"""What a started server tells: a banner on a terminal, the same facts as log lines elsewhere."""

from __future__ import annotations

import ipaddress
import json
import logging
import shlex
from typing import TextIO

import typer

from switchyard_py import __version__
from switchyard_py.config import Route, ServeSettings

logger = logging.getLogger(__name__)


def announce(settings: ServeSettings, port: int, stream: TextIO) -> None:
    """Tell routes, record directory and address; `port` is the bound one. Logs unless `stream` is a terminal."""
    if stream.isatty():
        typer.echo(banner(settings, port), file=stream)
        return
    logger.info("switchyard %s on %s, workers: %d", __version__, _url(settings.host, port), settings.workers)
    for route in settings.bundle.routes:
        logger.info("route %s -> %s", _names(route), _answer(route, settings))
    logger.info("records: %s", _records(settings))
    for warning in _warnings(settings):
        logger.warning("%s", warning)


def banner(settings: ServeSettings, port: int) -> str:
    """Return the banner, coloured; a stream that is no terminal loses the colours in `typer.echo`."""
    url = _url(settings.host, port)
    routes = settings.bundle.routes
    width = max(len(_names(route)) for route in routes)
    lines = [
        "",
        f"  {typer.style('switchyard', bold=True)} {__version__}   {typer.style(url, fg='cyan', bold=True)}",
        "",
        *(f"  {_names(route):{width}} → {_answer(route, settings)}" for route in routes),
        "",
        f"  records  {_records(settings)}",
        *(f"  {typer.style('warning', fg='yellow')}  {warning}" for warning in _warnings(settings)),
        "",
        "  try",
        *(f"  {line}" for line in _example(settings, url)),
        "",
    ]
    return "\n".join(lines)


def _names(route: Route) -> str:
    return ", ".join((route.name, *route.aliases))


def _answer(route: Route, settings: ServeSettings) -> str:
    captured = settings.log_dir is not None and route.target.engine is not None
    return (
        f"{route.target.model or 'the model asked for'} at {route.target.shown_url}, "
        f"{'captured' if captured else 'not captured'}"
    )


def _records(settings: ServeSettings) -> str:
    return str(settings.log_dir) if settings.log_dir else "none are kept"


def _warnings(settings: ServeSettings) -> list[str]:
    if settings.log_dir and not settings.bundle.auth.reader_keys and not _loopback(settings.host):
        return [
            f"whoever reaches {settings.host} can read every session: "
            "give the bundle auth.reader_keys, or --host 127.0.0.1, or set up a firewall"
        ]
    return []


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _url(host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _example(settings: ServeSettings, url: str) -> list[str]:
    route = next(iter(settings.bundle.captured_routes), settings.bundle.default_route)
    body = json.dumps({"model": route.name, "messages": [{"role": "user", "content": "Say hello"}]}, ensure_ascii=False)
    session = " -H 'proxy_x_session_id: demo'" if settings.log_dir else ""
    auth = settings.bundle.auth
    headers = f"-H 'content-type: application/json'{session}{_key('CALLER', auth.caller_keys)}"
    call = f"curl {url}/v1/chat/completions {headers} -d {shlex.quote(body)}"
    read = f"curl {url}/v1/sessions/demo/completions{_key('READER', auth.reader_keys)}"
    return [call, read] if settings.log_dir else [call]


def _key(whose: str, keys: tuple[str, ...]) -> str:
    return f' -H "authorization: Bearer ${whose}_KEY"' if keys else ""
