"""`switchyard serve`: settle the settings, prepare directory, descriptors and socket, then hand over to the server."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from switchyard_py.cli.options import GlobalOptions, end, read_bundle
from switchyard_py.cli.preparation import bind, check_access_log, create_private, raise_descriptor_limit

if TYPE_CHECKING:
    from switchyard_py.config import Bundle, ServeSettings

logger = logging.getLogger(__name__)

_BEFORE_COMMAND = ("--routing-profiles", "-c", "--enable-rl-logging", "--rl-log-dir", "--no-capture", "--version")
# By how the option begins: --intake-enabled, --intake-base-url and more.
_NOT_OFFERED = {
    "--config": "profile configs of version 2 are not offered: give a route bundle with --routing-profiles",
    "--inbound": "only chat completions are served so far: leave it out",
    "--reload": "not offered: restart the server after a change of the bundle",
    "--intake-": "the telemetry sink is not offered: leave it out",
    "--enable-intake": "the telemetry sink is not offered: leave it out",
}


class ServeCommand(TyperCommand):
    """`serve`, with answers to options that stand in the wrong place or belonged to the original proxy."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for argument in args:
            option = argument.partition("=")[0]
            if option in _BEFORE_COMMAND:
                ctx.fail(f"{option} stands before the command: switchyard {option} ... -- serve")
            for prefix, advice in _NOT_OFFERED.items():
                if option.startswith(prefix):
                    ctx.fail(f"{option}: {advice}")
        return super().parse_args(ctx, args)


def serve(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on.  [env var: SWITCHYARD_HOST; default: 0.0.0.0]"),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            "--port",
            "-p",
            metavar="INTEGER",
            help="Port; 0 picks a free one.  [env var: SWITCHYARD_PORT; default: 4000]",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers", "-w", metavar="INTEGER", help="Server processes.  [env var: SWITCHYARD_WORKERS; default: 1]"
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="critical, error, warning, info, debug or trace.  [env var: SWITCHYARD_LOG_LEVEL; default: info]",
        ),
    ] = None,
    access_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for a line of JSON for each call; - is standard error.  [env var: SWITCHYARD_ACCESS_LOG]",
        ),
    ] = None,
) -> None:
    """Serve the routes of the bundle until interrupted.

    A flag beats its environment variable, which beats the bundle's `server` section.
    """
    from switchyard_py.cli.banner import announce
    from switchyard_py.cli.limits import limits
    from switchyard_py.logs import configure_logging

    options: GlobalOptions = context.obj
    flags = {"host": host, "port": port, "workers": workers, "log_level": log_level, "access_log": access_log}
    overrides = _overrides(flags, os.environ)
    bundle = read_bundle(context, options.routing_profiles)
    log_dir = options.log_dir(bundle)
    settings = _settings(bundle, log_dir, overrides)
    configure_logging(settings.log_level)
    if log_dir:
        create_private(log_dir)
    elif options.enable_rl_logging:
        logger.warning("--enable-rl-logging: no route declares token_capture_engine, so nothing is recorded")
    if settings.access_log is not None:
        check_access_log(settings.access_log)
    for line in limits(settings, *raise_descriptor_limit()):
        logger.info("%s", line)
    with bind(settings.host, settings.port) as listener:
        announce(settings, listener.getsockname()[1], sys.stderr)
        from switchyard_py.server import CannotStart
        from switchyard_py.supervisor import serve as run_server

        try:
            status = run_server(settings, listener)
        except CannotStart as error:
            end(str(error))
        raise typer.Exit(status)


def _overrides(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the server settings that flags or environment variables give; ends the command for a bad one."""
    from switchyard_py.config import ConfigError, parse_server_setting

    overrides: dict[str, Any] = {}
    for name, flag in flags.items():
        variable = f"SWITCHYARD_{name.upper()}"
        text, source = (environ.get(variable) or None, variable) if flag is None else (flag, _flag(name))
        # Kubernetes sets SWITCHYARD_PORT=tcp://10.0.0.1:4000 in every pod beside a service named switchyard.
        if text is None or (source == "SWITCHYARD_PORT" and "://" in text):
            continue
        try:
            overrides[name] = parse_server_setting(name, text, source)
        except ConfigError as error:
            end(str(error), code=2)
    return overrides


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _settings(bundle: Bundle, log_dir: Path | None, overrides: Mapping[str, Any]) -> ServeSettings:
    from switchyard_py.config import ServeSettings

    server = bundle.server
    values = {name: getattr(server, name) for name in ("host", "port", "workers", "log_level", "access_log")}
    return ServeSettings(bundle=bundle, log_dir=log_dir, **{**values, **overrides})
