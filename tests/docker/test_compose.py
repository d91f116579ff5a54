"""compose.yaml: proxy and engine fit together, and fit the image and the bundle."""

import re
from pathlib import Path
from typing import Any

import yaml

from switchyard_py.config import load_bundle

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
PROXY, ENGINE = COMPOSE["services"]["proxy"], COMPOSE["services"]["engine"]
BUNDLE = load_bundle(DOCKER / "bundle.yaml", {})


def option(name: str) -> str:
    """The value of an option of the engine's command."""
    (value,) = (each.partition("=")[2] for each in ENGINE["command"] if each.startswith(f"--{name}="))
    return str(value)


def test_the_proxy_waits_for_a_healthy_engine() -> None:
    assert PROXY["depends_on"] == {"engine": {"condition": "service_healthy"}}
    assert f"http://127.0.0.1:{option('port')}/health" in ENGINE["healthcheck"]["test"][-1]
    assert ENGINE["healthcheck"]["test"][:3] == ["CMD", "python3", "-c"]
    compile(ENGINE["healthcheck"]["test"][3], "healthcheck", "exec")


def test_the_bundle_names_the_engine() -> None:
    (route,) = BUNDLE.routes
    assert route.target.base_url == f"http://engine:{option('port')}/v1"
    assert route.target.model == option("served-model-name")
    assert route.target.engine == "vllm"


def test_what_is_mounted_is_where_the_image_looks() -> None:
    dockerfile = (DOCKER / "Dockerfile").read_text()
    bundle, records = PROXY["volumes"]
    source, inside, mode = bundle.split(":")
    assert (DOCKER / source) == BUNDLE.path
    assert f"SWITCHYARD_ROUTING_PROFILES={inside} " in dockerfile
    assert mode == "ro"
    volume, inside = records.split(":")
    assert f"VOLUME {inside}\n" in dockerfile
    assert volume in COMPOSE["volumes"]


def test_only_this_machine_reaches_the_proxy_and_nobody_the_engine() -> None:
    assert PROXY["ports"] == ["127.0.0.1:4000:4000"]
    assert "ports" not in ENGINE


def test_images_are_pinned_and_name_no_host() -> None:
    assert re.fullmatch(r"vllm/vllm-openai:v\d+\.\d+\.\d+", ENGINE["image"])
    assert PROXY["image"] == "switchyard"
    assert (DOCKER / PROXY["build"]["context"] / PROXY["build"]["dockerfile"]).resolve() == DOCKER / "Dockerfile"
