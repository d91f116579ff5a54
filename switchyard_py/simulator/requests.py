"""The request bodies the simulator reads, and the engine's checks of their values.

Unknown fields are ignored, as vLLM does.
"""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.requests import Request

from switchyard_py.simulator.errors import BadRequest, InvalidBody
from switchyard_py.simulator.tokenizer import VOCABULARY_SIZE

MAX_TOP_LOGPROBS = 20
# All choices of a call are generated in one process, in turns; vLLM takes thousands.
MAX_CHOICES = 128

_Model = TypeVar("_Model", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = None


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class StructuredOutputs(BaseModel):
    """`structured_outputs`; other constraints than these are ignored."""

    json_schema: dict[str, Any] | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None


class ResponseFormat(BaseModel):
    """`response_format`."""

    type: str | None = None
    json_schema: dict[str, Any] | None = None


class KvTransferParams(BaseModel):
    """`kv_transfer_params`, as far as they give a prompt."""

    prompt_token_ids: list[int] | None = None


class SamplingBody(_Body):
    """What chat and text completions share."""

    n: int | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: int | None = 1
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    truncate_prompt_tokens: int | None = None
    structured_outputs: StructuredOutputs | None = None
    response_format: ResponseFormat | None = None
    request_id: str | None = None

    @field_validator("stop")
    @classmethod
    def _as_list(cls, value: str | list[str] | None) -> list[str] | None:
        return [value] if isinstance(value, str) else value

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [text for text in self.stop or () if text]

    @property
    def choice_count(self) -> int:
        """How many choices are asked for."""
        return 1 if self.n is None else self.n

    @property
    def limit(self) -> int | None:
        """The most tokens a choice may have, where the request says."""
        return self.max_tokens

    def check_sampling(self, max_model_len: int) -> None:
        """Raise BadRequest for a value out of range."""
        if self.stream_options is not None and not self.stream:
            raise BadRequest("Stream options can only be defined when `stream=True`.", "stream_options")
        if self.prompt_logprobs is not None and self.prompt_logprobs > 0 and self.stream:
            raise BadRequest("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
        if self.choice_count < 1:
            raise BadRequest(f"n must be at least 1, got {self.n}.", "n", self.n)
        if self.choice_count > MAX_CHOICES:
            raise BadRequest(f"n must be at most {MAX_CHOICES}, got {self.n}.", "n", self.n)
        if self.temperature is not None and self.temperature < 0:
            message = f"temperature must be non-negative, got {self.temperature}."
            raise BadRequest(message, "temperature", self.temperature)
        if self.temperature is not None and self.temperature > 2:
            message = f"temperature must be in [0, 2], got {self.temperature}."
            raise BadRequest(message, "temperature", self.temperature)
        if self.limit is not None and self.limit < 1:
            raise BadRequest(f"max_tokens must be at least 1, got {self.limit}.", "max_tokens", self.limit)
        if self.limit is not None and self.limit > max_model_len:
            message = f"max_tokens={self.limit} cannot be greater than max_model_len={max_model_len}."
            raise BadRequest(f"{message} Please request fewer output tokens.", "max_tokens", self.limit)


class ChatBody(SamplingBody):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_completion_tokens: int | None = None
    include_reasoning: bool = True
    return_prompt_text: bool | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    kv_transfer_params: KvTransferParams | None = None

    @property
    def limit(self) -> int | None:
        """`max_completion_tokens` goes before `max_tokens`."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def given_prompt_ids(self) -> list[int] | None:
        """The ids of `kv_transfer_params`, which replace the templated messages."""
        return self.kv_transfer_params.prompt_token_ids if self.kv_transfer_params else None

    @property
    def named_tool(self) -> str | None:
        """The function a named tool choice forces."""
        if not isinstance(self.tool_choice, dict):
            return None
        function = self.tool_choice.get("function")
        return str(function.get("name")) if isinstance(function, dict) else ""

    @property
    def usable_tools(self) -> list[dict[str, Any]]:
        """The functions the model may call."""
        functions = [tool.get("function") for tool in self.tools or () if self.tool_choice != "none"]
        return [function for function in functions if isinstance(function, dict)]

    def thinks(self, default: bool) -> bool:
        """Whether thinking is on for this request."""
        return bool((self.chat_template_kwargs or {}).get("enable_thinking", default))

    def check(self, max_model_len: int) -> None:
        """Raise BadRequest for what the engine refuses."""
        if self.tools == []:
            message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
            raise BadRequest(message, "tools")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise BadRequest("When using `tool_choice`, `tools` must be set.", "tool_choice")
        if self.named_tool is not None and all(tool.get("name") != self.named_tool for tool in self.usable_tools):
            message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise BadRequest(message, "tool_choice")
        if self.top_logprobs and not self.logprobs:
            raise BadRequest("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        _check_top_logprobs(self.top_logprobs)
        self.check_sampling(max_model_len)
        if not self.messages and self.given_prompt_ids is None:
            raise BadRequest("Cannot apply chat template to an empty conversation. Provide at least one message.")


class CompletionBody(SamplingBody):
    """POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = 16
    logprobs: int | None = None
    echo: bool | None = False

    def check(self, max_model_len: int) -> None:
        """Raise BadRequest for what the engine refuses."""
        _check_top_logprobs(self.logprobs)
        self.check_sampling(max_model_len)


class TokenizeBody(_Body):
    """POST /tokenize, prompt or chat form."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = False


class AbortBody(BaseModel):
    """POST /abort_requests; no ids mean every request."""

    request_ids: list[str] = []


class DetokenizeBody(_Body):
    """POST /detokenize."""

    tokens: list[int]


async def read_body(request: Request, kind: type[_Model]) -> _Model:
    """Parse a request body. Raises InvalidBody."""
    content = await request.body()
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise InvalidBody(["Unsupported Media Type: Only 'application/json' is allowed"], None)
    if not content:
        detail = {"type": "missing", "loc": "body", "msg": "Field required", "input": "None"}
        raise InvalidBody([str(detail)], "body")
    try:
        return kind.model_validate(json.loads(content))
    except ValidationError as error:
        raise InvalidBody.of_fields(error.errors(include_url=False)) from error
    except json.JSONDecodeError as error:
        raise InvalidBody.of_json(error.msg, error.pos) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidBody.of_json(type(error).__name__, 0) from error


def check_vocabulary(ids: list[int], param: str | None = None) -> None:
    """Raise BadRequest for an id that is no token."""
    for token in ids:
        if not 0 <= token < VOCABULARY_SIZE:
            raise BadRequest(f"Token id {token} is out of vocabulary", param)


def _check_top_logprobs(count: int | None) -> None:
    if count is not None and count > MAX_TOP_LOGPROBS:
        message = f"Requested sample logprobs of {count}, which is greater than max allowed: {MAX_TOP_LOGPROBS}"
        raise BadRequest(message, "logprobs", count)
