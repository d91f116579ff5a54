"""From a request to the token ids the model sees, and the engine's limits on them."""

from typing import Any, NamedTuple

from switchyard_py.simulator.errors import BadRequest
from switchyard_py.simulator.requests import ChatBody, CompletionBody, check_vocabulary
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.template import render_prompt
from switchyard_py.simulator.tokenizer import decode, encode


class Prompt(NamedTuple):
    """A prompt as ids and as text; `text` is None where the client sent ids."""

    ids: list[int]
    text: str | None


def chat_prompt(body: ChatBody, settings: SimulatorSettings) -> Prompt:
    """The prompt of a chat request. Raises BadRequest.

    The ids of `kv_transfer_params` replace the templated messages, except where a message has content that is no text.
    """
    given = body.given_prompt_ids
    if given is not None and not any(_has_media(message) for message in body.messages):
        check_vocabulary(given, "kv_transfer_params.prompt_token_ids")
        if len(given) >= settings.max_model_len:
            limit = f"model's maximum context length ({settings.max_model_len})"
            raise BadRequest(f"Input length ({len(given)}) exceeds {limit}.")
        return Prompt(given, decode(given))
    text = render_prompt(
        body.messages,
        body.tools,
        enable_thinking=body.thinks(settings.thinking),
        keep_thinking=settings.keep_thinking,
        add_generation_prompt=body.add_generation_prompt,
    )
    return Prompt(_fit(encode(text), body.truncate_prompt_tokens, settings.max_model_len), text)


def completion_prompts(body: CompletionBody, max_model_len: int) -> list[Prompt]:
    """The prompts of a text completion. Raises BadRequest."""
    given = body.prompt
    texts_or_ids: list[Any] = (
        [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
    )
    if not texts_or_ids or not all(texts_or_ids):
        raise BadRequest("The decoder prompt cannot be empty")
    prompts: list[Prompt] = []
    for item in texts_or_ids:
        if isinstance(item, str):
            prompts.append(Prompt(_fit(encode(item), body.truncate_prompt_tokens, max_model_len), item))
        else:
            check_vocabulary(item)
            prompts.append(Prompt(_fit(item, body.truncate_prompt_tokens, max_model_len), None))
    return prompts


def _fit(ids: list[int], truncate: int | None, max_model_len: int) -> list[int]:
    if truncate is not None and truncate > 0:
        ids = ids[-truncate:]
    if len(ids) >= max_model_len:
        # The engine stops counting one token past the limit, and so reports that number whatever the length.
        counted = max_model_len + 1
        message = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
            f"{counted} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            "length of the input prompt."
        )
        raise BadRequest(message, "input_tokens", counted)
    return ids


def _has_media(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(p, dict) and not isinstance(p.get("text"), str) for p in content
    )
