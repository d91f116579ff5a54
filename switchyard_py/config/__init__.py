"""The routing-profiles file: from YAML to frozen settings, or a one-line error."""

from switchyard_py.config.description import describe_bundle, describe_target
from switchyard_py.config.errors import ConfigError
from switchyard_py.config.fields import session_secret_fault
from switchyard_py.config.loader import load_bundle, parse_server_setting
from switchyard_py.config.settings import (
    SESSION_KEY_MARKER,
    AuthSettings,
    Bundle,
    CaptureSettings,
    Route,
    ServerSettings,
    ServeSettings,
    SessionSettings,
    Target,
)

__all__ = [
    "SESSION_KEY_MARKER",
    "AuthSettings",
    "Bundle",
    "CaptureSettings",
    "ConfigError",
    "Route",
    "ServeSettings",
    "ServerSettings",
    "SessionSettings",
    "Target",
    "describe_bundle",
    "describe_target",
    "load_bundle",
    "parse_server_setting",
    "session_secret_fault",
]
