"""`switchyard demo`: play a conversation through the proxy, without a GPU, and check every claim about it."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from switchyard_py.cli.options import GlobalOptions, end
from switchyard_py.cli.preparation import bind, create_private
from switchyard_py.cli.terminal import allow_any_text, shows_colours

HOST = "127.0.0.1"
INTERRUPTED = 130


def demo(
    context: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave engine and proxy running until Ctrl-C, and the records on disk.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", "-p", metavar="PORT", help="Port of the proxy.  [default: a free one]", min=0, max=65535
        ),
    ] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC", help="Break the engine, for example strip=token_ids; see simulate. Can be repeated."
        ),
    ] = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; the variable NO_COLOR does the same.")
    ] = False,
) -> None:
    """Play a conversation with a tool through the proxy, in front of a simulated engine, and check the records.

    Exits with 1 when anything it claims is untrue.
    """
    options: GlobalOptions = context.obj
    if options.no_capture:
        context.fail("--no-capture leaves nothing to show: leave it out")
    from switchyard_py.demo import Demonstration, Presentation, Unanswered
    from switchyard_py.demo.stage import NotStarted
    from switchyard_py.simulator import SimulatorSettingsError, compose_settings

    try:
        faults = compose_settings(None, fault or []).faults
    except SimulatorSettingsError as error:
        end(str(error))
    colours = not no_color and shows_colours(sys.stdout)
    allow_any_text(sys.stdout)
    with bind(HOST, 0) as engine, bind(HOST, port) as proxy, _records(options.rl_log_dir, keep) as log_dir:
        demonstration = Demonstration(
            log_dir,
            engine,
            proxy,
            Presentation(sys.stdout, colours=colours),
            faults,
            paced=sys.stdout.isatty(),
            keep=keep,
        )
        try:
            claims = asyncio.run(demonstration.run())
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise typer.Exit(INTERRUPTED) from None
        except Unanswered as error:
            end(str(error))
        except NotStarted:
            end("a server did not start")
    untrue = [claim for claim in claims if claim.fault]
    if untrue:
        end(f"{len(untrue)} of {len(claims)} claims are untrue, first: {untrue[0].text}: {untrue[0].fault}")


@contextmanager
def _records(wanted: Path | None, keep: bool) -> Iterator[Path]:
    """The directory of the records; a temporary one, which goes unless it is to be kept, when none is wanted."""
    if wanted is not None:
        create_private(wanted)
        yield wanted.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="switchyard-demo-"))
    try:
        yield directory
    finally:
        if keep:
            typer.echo(f"\nrecords stay in {directory}", err=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
