"""The wire formats agents speak."""

from switchyard_py.dialects.chat import Chat
from switchyard_py.dialects.completions import Completions
from switchyard_py.dialects.dialect import Dialect
from switchyard_py.dialects.messages import CountTokens, Messages
from switchyard_py.dialects.responses import Responses
from switchyard_py.dialects.tokens import Detokenize, Tokenize

DIALECTS: tuple[Dialect, ...] = (
    Chat(),
    Completions(),
    Messages(),
    CountTokens(),
    Responses(),
    Tokenize(),
    Detokenize(),
)
