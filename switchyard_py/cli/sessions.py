"""`switchyard sessions`: what concerns single sessions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from switchyard_py.cli.options import GlobalOptions, end, read_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_VARIABLE = "SWITCHYARD_SESSION_SECRET"  # noqa: S105  the name of a variable

sessions = typer.Typer(no_args_is_help=True, help="Make keys for sessions.")


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
