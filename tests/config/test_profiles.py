"""The example bundles load, and say what their comments say."""

from pathlib import Path

import pytest

from switchyard_py.config import Bundle, load_bundle

PROFILES = Path(__file__).parents[2] / "profiles"


def profile(name: str, **environ: str) -> Bundle:
    return load_bundle(PROFILES / f"{name}.yaml", environ)


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_loads(path: Path) -> None:
    assert load_bundle(path, {"VLLM_API_KEY": "k"}).routes


def test_single_vllm() -> None:
    (route,) = profile("single-vllm").captured_routes
    assert (route.name, route.target.model, route.target.base_url) == (
        "policy_model",
        "actual-model",
        "http://127.0.0.1:8000/v1",
    )


def test_several_models() -> None:
    bundle = profile("several-models")
    assert len(bundle.captured_routes) == 3
    assert bundle.default_route.name == "policy"
    assert {route.target.total_timeout for route in bundle.routes} == {1800}


def test_captured_beside_uncaptured() -> None:
    bundle = profile("captured-beside-uncaptured")
    assert [route.name for route in bundle.captured_routes] == ["policy"]
    assert bundle.routes[2].type == "passthrough"


def test_environment() -> None:
    bundle = profile("environment", VLLM_API_KEY="k", MODEL="big", PORT="8080", RECORDS="elsewhere")
    target = bundle.routes[0].target
    assert (target.model, target.api_key, target.base_url) == ("big", "k", "http://127.0.0.1:8000/v1")
    assert (bundle.server.port, str(bundle.capture.log_dir)) == (8080, "elsewhere")


def test_nemo_gym_openhands() -> None:
    bundle = profile("nemo-gym-openhands", POLICY_MODEL="tiny", POLICY_URL="http://127.0.0.1:9/v1")
    target = bundle.routes[0].target
    assert (target.model, target.api_key, target.base_url) == ("tiny", "dummy", "http://127.0.0.1:9/v1")
    assert (target.retries, target.on_context_overflow, bundle.sessions.required) == (60, "empty_length", True)
