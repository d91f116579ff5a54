"""A proxy between AI agents and vLLM that records the exact tokens of every call."""

__version__ = "0.1.0"

__all__ = ["__version__"]
