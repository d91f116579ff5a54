"""What is said: the agent's lines and the engine's. Each part fits on one line of an 80-column terminal."""

from typing import Any

from switchyard_py.simulator.settings import ScriptedCall, ScriptedReply

MODEL = "policy"

SYSTEM = "You tell people about the weather."
QUESTION = "Is it warm in Paris today?"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city right now",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        },
    },
}
TOOL_RESULT = '{"degrees": 21, "sky": "clear"}'

REPLIES = (
    ScriptedReply(
        thinking="I cannot look outside, but there is a tool that can.",
        tool_calls=(ScriptedCall(name="get_weather", arguments={"city": "Paris", "unit": "celsius"}),),
    ),
    ScriptedReply(
        thinking="21 degrees under a clear sky is warm.",
        content="Yes, it is warm: 21 degrees and a clear sky.",
    ),
)
