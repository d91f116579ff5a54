"""The command line as a whole: global options, then a command. Usage errors end with 2, all other failures with 1.

Commands import what they need when they run, so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from switchyard_py import __version__
from switchyard_py.cli.checking import check
from switchyard_py.cli.demonstrating import demo
from switchyard_py.cli.options import GlobalOptions
from switchyard_py.cli.serving import ServeCommand, serve
from switchyard_py.cli.sessions import sessions
from switchyard_py.cli.simulate import simulate

# Tracebacks of the default kind print local variables, and with them secrets.
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=ServeCommand)(serve)
app.command()(check)
app.command()(demo)
app.command()(simulate)
app.add_typer(sessions, name="sessions")


def run() -> None:
    """Run the command line of this process."""
    try:
        app(prog_name="switchyard")
    except KeyboardInterrupt:  # before typer was there to handle it
        sys.exit(130)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"switchyard {__version__}")
        raise typer.Exit


@app.callback()
def switchyard(
    context: typer.Context,
    routing_profiles: Annotated[
        Path | None,
        typer.Option(
            "--routing-profiles",
            "-c",
            metavar="FILE",
            envvar="SWITCHYARD_ROUTING_PROFILES",
            help="Route bundle to serve.",
        ),
    ] = None,
    rl_log_dir: Annotated[
        Path | None,
        typer.Option(
            "--rl-log-dir",
            metavar="DIR",
            envvar="SWITCHYARD_RL_LOG_DIR",
            help="Directory of the records.  [default: the bundle's capture.dir, else ./rl_data]",
        ),
    ] = None,
    enable_rl_logging: Annotated[
        bool,
        typer.Option(
            "--enable-rl-logging",
            help="Accepted for compatibility: routes with a token_capture_engine are recorded anyway.",
        ),
    ] = False,
    no_capture: Annotated[
        bool, typer.Option("--no-capture", help="Record nothing, whatever the bundle declares.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """A proxy between AI agents and vLLM that records the exact tokens of every call.

    Global options come before the command: switchyard --routing-profiles FILE -- serve
    """
    if enable_rl_logging and no_capture:
        context.fail("--enable-rl-logging and --no-capture contradict each other: give one of them")
    context.obj = GlobalOptions(routing_profiles, rl_log_dir, enable_rl_logging, no_capture)
