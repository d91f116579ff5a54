"""`switchyard simulate`: an engine without a model, for trying out and testing agents and the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchyard_py.cli.options import end
from switchyard_py.cli.preparation import bind

if TYPE_CHECKING:
    from switchyard_py.simulator import SimulatorSettings


def simulate(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model name to serve.")] = "simulated",
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML or JSON file of replies and faults.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="A fault, for example call=3,status=503 or strip=token_ids. Can be repeated. "
            "Keys: call, request_id, status, delay, cut_after, die_after, strip.",
        ),
    ] = None,
    ttft: Annotated[float, typer.Option(metavar="SECONDS", help="Time to the first token.", min=0)] = 0.0,
    tokens_per_second: Annotated[
        float | None, typer.Option(metavar="RATE", help="Pace of each call.  [default: as fast as it goes]")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Calls that generate at a time; others wait.  [default: no limit]")
    ] = None,
    keep_alive_interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Silence in a stream after which a comment is sent.")
    ] = None,
    max_model_len: Annotated[int, typer.Option(help="Context length in tokens, that is in bytes of text.")] = 131_072,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Bearer token asked for under /v1.")] = None,
    thinking: Annotated[bool, typer.Option(help="Think where the request does not say.")] = True,
    keep_thinking: Annotated[
        bool, typer.Option("--keep-thinking", help="Keep the thinking of earlier turns in the prompt.")
    ] = False,
) -> None:
    """Serve a simulated engine that speaks vLLM's wire, until interrupted."""
    import uvicorn

    from switchyard_py.simulator import create_simulator

    settings = _settings(
        script,
        fault or [],
        model=model,
        ttft=ttft,
        tokens_per_second=tokens_per_second,
        slots=slots,
        keep_alive_interval=keep_alive_interval,
        max_model_len=max_model_len,
        api_key=api_key,
        thinking=thinking,
        keep_thinking=keep_thinking,
    )
    with bind(host, port) as listener:
        listener.listen()  # whoever reads the line may connect at once
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"simulated engine {model!r} at http://{shown}:{listener.getsockname()[1]}/v1")
        config = uvicorn.Config(
            create_simulator(settings),
            lifespan="off",
            access_log=False,
            # Connections that a fault cuts are logged as errors of the application.
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _settings(script: Path | None, faults: list[str], **options: Any) -> SimulatorSettings:
    from switchyard_py.simulator import SimulatorSettingsError, compose_settings

    try:
        return compose_settings(script, faults, **options)
    except SimulatorSettingsError as error:
        end(str(error))
