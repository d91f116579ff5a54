"""The wire formats agents speak."""

from switchyard_py.dialects.chat import Chat
from switchyard_py.dialects.completions import Completions
from switchyard_py.dialects.dialect import Dialect

DIALECTS: tuple[Dialect, ...] = (Chat(), Completions())
