"""The models agents may ask for, and which target answers each."""

from typing import Any

import pytest
from running_proxy import StartProxy, bundle
from scripted_engine import ScriptedEngine, Turn, chat, json_reply, refused_port

TURN = Turn(text="hello")


def _cards(*cards: tuple[str, int | None]) -> dict[str, Any]:
    data = [{"id": name, "object": "model", "max_model_len": length} for name, length in cards]
    return {"object": "list", "data": data}


async def test_the_list_of_one_route(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.on("GET", "/v1/models", json_reply(_cards(("another", 1), ("actual-model", 4096))))
    response = await running.client.get("/v1/models")
    assert response.json() == {
        "object": "list",
        "data": [
            {
                "id": "policy_model",
                "object": "model",
                "type": "model",
                "created": 0,
                "owned_by": "switchyard",
                "display_name": "policy_model",
                "capabilities": {
                    "streaming": True,
                    "tool_calling": True,
                    "context_window": 4096,
                    "supported_inbound_formats": ["openai-chat-completions", "openai-responses", "anthropic-messages"],
                },
                "switchyard": {"profile": "model"},
                "max_model_len": 4096,
            }
        ],
        "first_id": "policy_model",
        "last_id": "policy_model",
        "has_more": False,
        "default_model": "policy_model",
        "model_pool": ["policy_model"],
    }
    assert dict(engine.requests[0].headers)["authorization"] == "Bearer dummy"


def _routes(base_url: str) -> dict[str, Any]:
    target = bundle(base_url)["routes"]["policy_model"]["target"]
    return {
        "first": {"type": "model", "target": target, "aliases": ["gpt-4o", "org/name"], "description": "The first."},
        "second": {"type": "model", "target": {**target, "model": "b"}, "default": True, "display_name": "Second"},
    }


async def test_aliases_are_listed_with_the_route_they_stand_for(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(routes=_routes(engine.base_url))
    listing = (await running.client.get("/v1/models")).json()
    assert listing["model_pool"] == ["first", "gpt-4o", "org/name", "second"]
    assert listing["default_model"] == "second"
    by_id = {entry["id"]: entry for entry in listing["data"]}
    assert by_id["gpt-4o"]["switchyard"] == {"profile": "model", "alias_of": "first"}
    assert by_id["first"]["description"] == "The first."
    assert "description" not in by_id["second"]
    assert by_id["second"]["display_name"] == "Second"
    assert "max_model_len" not in by_id["second"]
    assert by_id["second"]["capabilities"]["context_window"] == 128_000


@pytest.mark.parametrize("name", ["first", "gpt-4o", "org/name", "org%2Fname"])
async def test_one_model(proxy: StartProxy, engine: ScriptedEngine, name: str) -> None:
    running = await proxy(routes=_routes(engine.base_url))
    response = await running.client.get(f"/v1/models/{name}")
    assert response.json()["id"] == name.replace("%2F", "/")


async def test_an_unknown_model_is_404_in_the_error_shape(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    looked_up = await running.client.get("/v1/models/nope")
    called = await running.chat({"model": "nope"}, "s")
    for response in (looked_up, called):
        assert response.status_code == 404
        error = response.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("not_found_error", "model_not_found", "model")
        assert error["message"].startswith("No route registered for model nope")
        assert response.headers["x-switchyard-error-source"] == "switchyard"
    assert engine.generations == []


async def test_a_call_goes_to_its_route_by_name_by_alias_or_to_the_default(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(routes=_routes(engine.base_url))
    engine.default(chat(TURN))
    asked = ["first", "gpt-4o", "org/name", "second", "nope", "FIRST", "", None, 5]
    for model in asked:
        assert (await running.chat({"model": model}, "s")).status_code == 200
    served = [request.json["model"] for request in engine.generations]
    assert served == ["actual-model"] * 3 + ["b"] * 6
    assert [record["call"]["route"] for record in await running.records("s")] == ["first"] * 3 + ["second"] * 6


async def test_a_passthrough_route_lists_and_serves_what_its_engine_has(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    target = dict(bundle(engine.base_url)["routes"]["policy_model"]["target"])
    del target["model"]
    running = await proxy(routes={"pool": {"type": "passthrough", "target": target}})
    engine.on("GET", "/v1/models", json_reply(_cards(("lora-a", 100), ("base", 200), ("pool", 300))))
    engine.default(chat(TURN))
    listing = (await running.client.get("/v1/models")).json()
    assert listing["model_pool"] == ["pool", "lora-a", "base"]
    sources = [entry["switchyard"] for entry in listing["data"]]
    assert (
        sources
        == [{"profile": "passthrough", "source": "configured"}]
        + [{"profile": "passthrough", "source": "discovered"}] * 2
    )
    for model, status in (("lora-a", 200), ("base", 200), ("nope", 404)):
        assert (await running.chat({"model": model}, "s")).status_code == status
    assert [request.json["model"] for request in engine.generations] == ["lora-a", "base"]
    assert await running.fates("s") == {"valid": 2}


async def test_the_context_length_shows_once_an_engine_has_come_up(
    proxy: StartProxy, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchyard_py.routing.catalogue.RETRY_SECONDS", 0.02)
    running = await proxy()
    await engine.stop()
    (down,) = (await running.client.get("/v1/models")).json()["data"]
    assert "max_model_len" not in down
    await engine.start()
    await engine.until(lambda: True)
    for _ in range(100):
        (up,) = (await running.client.get("/v1/models")).json()["data"]
        if "max_model_len" in up:
            break
    assert up["max_model_len"] == up["capabilities"]["context_window"] == 4096


async def test_an_engine_that_is_down_does_not_keep_the_list_waiting(proxy: StartProxy, engine: ScriptedEngine) -> None:
    with refused_port() as port:
        running = await proxy(target={"base_url": f"http://127.0.0.1:{port}/v1"})
        assert (await running.client.get("/v1/models")).json()["model_pool"] == ["policy_model"]
