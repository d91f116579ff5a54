"""OpenAI Responses: translated to chat completions for the engine, and its replies back."""

from switchyard_py.dialects.responses.dialect import Responses

__all__ = ["Responses"]
