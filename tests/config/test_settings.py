"""Resolved settings keep secrets to themselves and travel to worker processes."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from switchyard_py.config import Bundle, ServeSettings, describe_bundle, describe_target

TEXT = """
routes:
  p:
    target:
      model: m
      base_url: http://user:secret-password@h:8000/v1
      api_key: secret-key
      extra_headers: {x-tenant: secret-header}
      token_capture_engine: vllm
"""


@pytest.fixture
def bundle(load: Any) -> Bundle:
    loaded: Bundle = load(TEXT)
    return loaded


def test_credentials_are_resolved_but_never_shown(bundle: Bundle) -> None:
    target = bundle.routes[0].target
    assert target.api_key == "secret-key"
    assert target.base_url == "http://user:secret-password@h:8000/v1"
    assert target.extra_headers == {"x-tenant": "secret-header"}
    serve = ServeSettings(bundle, None, "::", 0, 1, "info")
    for shown in (repr(bundle), str(bundle), repr(target), repr(serve), target.id, target.shown_url):
        assert "secret-" not in shown
    assert "secret-" not in str(describe_bundle(bundle))


def test_urls_are_shown_without_user_info(bundle: Bundle) -> None:
    assert bundle.routes[0].target.shown_url == "http://***@h:8000/v1"


def test_a_description_uses_the_keys_of_the_file(bundle: Bundle) -> None:
    described = describe_target(bundle.routes[0].target)
    assert described["token_capture_engine"] == "vllm"
    assert described["api_key"] == "***"
    assert described["extra_headers"] == {"x-tenant": "***"}
    assert described["base_url"] == "http://***@h:8000/v1"
    assert "engine" not in described


def test_serve_settings_reach_a_worker_process(bundle: Bundle) -> None:
    settings = ServeSettings(bundle, Path("records"), "127.0.0.1", 4000, 2, "info")
    assert pickle.loads(pickle.dumps(settings)) == settings
