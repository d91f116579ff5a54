"""`switchyard sessions`: what was captured, session by session, and keys for their calls."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from switchyard_py.cli.options import GlobalOptions, end, read_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from switchyard_py.cli.session_sources import SessionSource

KEY_VARIABLE = "SWITCHYARD_READER_KEY"
SECRET_VARIABLE = "SWITCHYARD_SESSION_SECRET"  # noqa: S105  the name of a variable

sessions = typer.Typer(no_args_is_help=True, help="Look into captured sessions, and make keys for new ones.")

UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Read from a running proxy, such as http://127.0.0.1:4000.")
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", "-d", metavar="DIR", help="Read a directory of records.  [default: where serve would write them]"
    ),
]
KeyOption = Annotated[
    str, typer.Option("--reader-key-env", metavar="NAME", help="Variable with the reader key that the proxy asks for.")
]
JSONOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each session.")]


class ModeChoice(StrEnum):
    STRICT = "strict"
    LINEAGE = "lineage"


class FormatChoice(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"


class RowChoice(StrEnum):
    MAIN = "main"
    ALL = "all"
    CALLS = "calls"


ModeOption = Annotated[
    ModeChoice,
    typer.Option(help="strict: one linear conversation and nothing else; lineage: the main chain of any session."),
]


@sessions.command("list")
def list_sessions(
    context: typer.Context,
    url: UrlOption = None,
    directory: DirectoryOption = None,
    reader_key_env: KeyOption = KEY_VARIABLE,
    as_json: JSONOption = False,
) -> None:
    """List all sessions by their first call, with what became of their calls."""
    from switchyard_py.cli.session_list import print_list
    from switchyard_py.cli.terminal import Terminal

    with _opened(context, url, directory, reader_key_env) as source:
        print_list(source, Terminal(sys.stdout), as_json=as_json)


@sessions.command()
def show(
    context: typer.Context,
    session_id: Annotated[str, typer.Argument(metavar="ID", help="Session to show.")],
    url: UrlOption = None,
    directory: DirectoryOption = None,
    reader_key_env: KeyOption = KEY_VARIABLE,
    as_json: JSONOption = False,
) -> None:
    """Draw the calls of a session as a tree, with their tokens, what they are worth, and why."""
    from switchyard_py.cli.call_tree import print_session
    from switchyard_py.cli.terminal import Terminal
    from switchyard_py.rawjson import encode
    from switchyard_py.rollouts import Refusal, build_lineage

    with _opened(context, url, directory, reader_key_env) as source:
        try:
            lineage = build_lineage(source.session(session_id))
        except Refusal as refusal:
            end(str(refusal))
        terminal = Terminal(sys.stdout)
        if as_json:
            terminal.write(encode(lineage.to_json()).decode())
        else:
            print_session(lineage, terminal)


@sessions.command()
def verify(
    context: typer.Context,
    session_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Sessions to verify.  [default: all]")
    ] = None,
    mode: ModeOption = ModeChoice.STRICT,
    url: UrlOption = None,
    directory: DirectoryOption = None,
    reader_key_env: KeyOption = KEY_VARIABLE,
    as_json: JSONOption = False,
) -> None:
    """Say of each session whether it can be trained on, and if not, which rule it breaks and why.

    Exits with 1 unless every one of them can.
    """
    from switchyard_py.cli.session_verdicts import print_verdicts
    from switchyard_py.cli.terminal import Terminal

    with _opened(context, url, directory, reader_key_env) as source:
        wanted = session_ids or (summary.session_id for summary in source.summaries())
        terminal = Terminal(sys.stdout)
        judged, accepted = print_verdicts(source, wanted, mode.value, terminal, as_json=as_json, key_env=reader_key_env)
        if not judged:
            end("there are no sessions to verify")
        if not as_json and judged > 1:
            terminal.write("", f"  {accepted} of {judged} sessions can be trained on in {mode} mode")
        failed = accepted < judged or bool(source.left_out)
    if failed:
        raise typer.Exit(1)


@sessions.command()
def export(
    context: typer.Context,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Directory for the files, made if need be.")],
    session_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Sessions to export.  [default: all]")
    ] = None,
    file_format: Annotated[FormatChoice, typer.Option("--format", help="Kind of the files.")] = FormatChoice.PARQUET,
    mode: ModeOption = ModeChoice.STRICT,
    rows_of: Annotated[
        RowChoice,
        typer.Option("--rows", help="What a row is: the main chain, each of all trainable chains, or each call."),
    ] = RowChoice.MAIN,
    url: UrlOption = None,
    directory: DirectoryOption = None,
    reader_key_env: KeyOption = KEY_VARIABLE,
    as_json: JSONOption = False,
) -> None:
    """Write training rows, a file for each session. What is there already is not written again.

    Sessions that give no rows are counted and named in the manifest. Exits with 1 when a session cannot be read.
    """
    try:
        from switchyard_py.cli.session_export import Export, ExportOptions, OtherExport
    except ModuleNotFoundError as error:
        end(f"export needs {error.name}, which is not installed: pip install 'switchyard-py[training]'")
    from switchyard_py.cli.export_progress import follow

    with _opened(context, url, directory, reader_key_env) as source:
        summaries = list(source.summaries()) if not session_ids else [source.summary(each) for each in session_ids]
        if not summaries:
            end("there are no sessions to export")
        try:
            files = Export(output, ExportOptions(file_format.value, mode.value, rows_of.value))
            unreadable = follow(files.run(source, summaries), len(summaries), output, as_json=as_json)
        except OtherExport as other:
            end(f"{output} holds files made otherwise: {other}; name another directory")
        except OSError as error:
            end(f"cannot write to {output}: {error.strerror or error}")
        failed = bool(unreadable or source.left_out)
    if failed:
        raise typer.Exit(1)


def _opened(
    context: typer.Context, url: str | None, directory: Path | None, reader_key_env: str
) -> AbstractContextManager[SessionSource]:
    from switchyard_py.cli.session_sources import opened

    return opened(context, url, directory, reader_key_env)


@sessions.command()
def key(
    context: typer.Context,
    session_id: Annotated[str, typer.Argument(metavar="ID", help="Session whose calls the key is for.")],
) -> None:
    """Print an API key that admits an agent to the calls of one session.

    It is signed with the first of the bundle's auth.session_secrets; without a bundle, with the secret in the variable
    SWITCHYARD_SESSION_SECRET.
    """
    from switchyard_py.access import signed_session_key
    from switchyard_py.errors import RequestRefused
    from switchyard_py.sessions import checked_id

    options: GlobalOptions = context.obj
    try:
        checked = checked_id(session_id)
    except RequestRefused as error:
        end(str(error))
    secret = _secret_of_bundle(context) if options.routing_profiles else _secret_of_environment(os.environ)
    typer.echo(signed_session_key(checked, secret))


def _secret_of_bundle(context: typer.Context) -> str:
    bundle = read_bundle(context, context.obj.routing_profiles)
    if not bundle.auth.session_secrets:
        end(f"{bundle.path}: auth.session_secrets: is not given, so nothing signs session keys: give it a secret")
    return bundle.auth.session_secrets[0]


def _secret_of_environment(environ: Mapping[str, str]) -> str:
    from switchyard_py.config import session_secret_fault

    secret = environ.get(SECRET_VARIABLE)
    if not secret:
        end(
            f"nothing to sign the key with: give a route bundle with --routing-profiles FILE before the command, "
            f"or set {SECRET_VARIABLE}"
        )
    if fault := session_secret_fault(secret):
        end(f"{SECRET_VARIABLE} {fault}")
    return secret
