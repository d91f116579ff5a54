"""`switchyard check`: validate a bundle and show what it comes to."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchyard_py.cli.options import GlobalOptions, read_bundle

if TYPE_CHECKING:
    from switchyard_py.cli.probing import Finding
    from switchyard_py.config import Bundle, Route

    Findings = dict[str, list[Finding]]


def check(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Route bundle.  [default: --routing-profiles]")
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Make the engine of each captured route answer one small call, buffered and streamed."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every resolved setting as JSON.")] = False,
) -> None:
    """Validate a bundle and print its resolved routes, secrets hidden.

    Exits with 1 when the bundle cannot be used or a probe does not bring back all that a record needs.
    """
    options: GlobalOptions = context.obj
    if file is None and options.routing_profiles is None:
        context.fail("no route bundle: name one, switchyard check FILE")
    bundle = read_bundle(context, file or options.routing_profiles)
    findings = asyncio.run(_probes(bundle)) if probe else None
    typer.echo(_json(bundle, options, findings) if as_json else _text(bundle, options))
    if findings is not None:
        if not as_json:
            typer.echo(_probe_text(findings))
        if not all(finding.complete for found in findings.values() for finding in found):
            raise typer.Exit(1)


async def _probes(bundle: Bundle) -> Findings:
    from switchyard_py.cli.probing import probe

    return {route.name: await probe(route.target) for route in bundle.captured_routes}


def _probe_text(findings: Findings) -> str:
    if not findings:
        return "\nno route declares token_capture_engine: there is nothing to probe"
    return "\n".join(
        f"\nprobe of {name}\n" + "\n".join(f"  {finding.mode}  {finding}" for finding in found)
        for name, found in findings.items()
    )


def _json(bundle: Bundle, options: GlobalOptions, findings: Findings | None) -> str:
    from switchyard_py.config import describe_bundle

    log_dir = options.log_dir(bundle)
    shown = {**describe_bundle(bundle), "log_dir": str(log_dir) if log_dir else None}
    if findings is not None:
        shown["probe"] = {
            name: {finding.mode: {"complete": finding.complete, **_counts(finding)} for finding in found}
            for name, found in findings.items()
        }
    return json.dumps(shown, indent=2)


def _counts(finding: Finding) -> dict[str, Any]:
    return {key: value for key, value in asdict(finding).items() if key != "mode"}


def _text(bundle: Bundle, options: GlobalOptions) -> str:
    server = bundle.server
    blocks = [
        f"{bundle.path}: valid",
        *(_route(route) for route in bundle.routes),
        f"records  {options.log_dir(bundle) or 'none are kept'}\n"
        f"auth     {_auth(bundle)}\n"
        f"server   {server.host}:{server.port}, workers: {server.workers}, log level: {server.log_level}",
    ]
    return "\n\n".join(blocks)


def _auth(bundle: Bundle) -> str:
    numbers = ((name.replace("_", " "), len(secrets)) for name, secrets in asdict(bundle.auth).items())
    return ", ".join(f"{name}: {number or 'none'}" for name, number in numbers)


def _route(route: Route) -> str:
    from switchyard_py.config import Target, describe_target

    target = describe_target(route.target)
    # What every target has comes first, then only what differs from the built-in defaults.
    usual = describe_target(Target(model=route.target.model, base_url=route.target.base_url))
    shown: dict[str, Any] = {
        "model": target["model"] or "(the model asked for)",
        "base_url": target["base_url"],
        "token_capture_engine": target["token_capture_engine"] or "none: not captured",
        "api_key": target["api_key"] or "none",
    }
    shown |= {key: value for key, value in target.items() if key not in shown and value != usual[key]}
    if route.aliases:
        shown["aliases"] = ", ".join(route.aliases)
    mark = " (default)" if route.default else ""
    width = max(map(len, shown))
    lines = [
        f"  {key:{width}}  {value if isinstance(value, str) else json.dumps(value)}" for key, value in shown.items()
    ]
    return "\n".join([f"{route.name}{mark}: {route.type}", *lines])
