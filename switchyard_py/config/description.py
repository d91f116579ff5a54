"""A resolved bundle as JSON values for people to read, with secrets hidden."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from switchyard_py.config.settings import HIDDEN, Bundle, CaptureSettings, Target


def describe_bundle(bundle: Bundle) -> dict[str, Any]:
    """Return every setting of the bundle; keys, header values, user info of URLs and secrets of `auth` read `***`."""
    return {
        "path": str(bundle.path),
        "default_route": bundle.default_route.name,
        "routes": {
            route.name: {
                "type": route.type,
                "aliases": list(route.aliases),
                "default": route.default,
                "display_name": route.display_name,
                "description": route.description,
                "target": describe_target(route.target),
            }
            for route in bundle.routes
        },
        "capture": _capture(bundle.capture),
        "sessions": asdict(bundle.sessions),
        "auth": {name: [HIDDEN] * len(secrets) for name, secrets in asdict(bundle.auth).items()},
        "server": asdict(bundle.server),
    }


def _capture(capture: CaptureSettings) -> dict[str, Any]:
    settings = asdict(capture)
    directory = settings.pop("log_dir")
    return {"dir": str(directory) if directory else None, **settings}


def describe_target(target: Target) -> dict[str, Any]:
    """Return the settings of one target under the keys of the file, secrets hidden."""
    settings = asdict(target) | {
        "base_url": target.shown_url,
        "api_key": HIDDEN if target.api_key else None,
        "extra_headers": dict.fromkeys(target.extra_headers, HIDDEN),
        "drop_body": list(target.drop_body),
    }
    settings["token_capture_engine"] = settings.pop("engine")
    return settings
