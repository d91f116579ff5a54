"""The headers every request to a target carries."""

from switchyard_py.config import Target


def target_headers(target: Target) -> list[tuple[str, str]]:
    """The target's key as a bearer token, and its `extra_headers`, which may replace it."""
    headers = {"accept-encoding": "identity"}
    if target.api_key:
        headers["authorization"] = f"Bearer {target.api_key}"
    headers.update((name.lower(), value) for name, value in target.extra_headers.items())
    return list(headers.items())
