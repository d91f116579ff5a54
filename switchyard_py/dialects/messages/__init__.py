"""Anthropic Messages: translated to chat completions for the engine, and its replies back."""

from switchyard_py.dialects.messages.dialect import CountTokens, Messages

__all__ = ["CountTokens", "Messages"]
