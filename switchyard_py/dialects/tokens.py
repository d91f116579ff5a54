"""vLLM's own `/tokenize` and `/detokenize`: passed on to the engine of the model asked for, never captured."""

from switchyard_py.dialects.completions import Completions
from switchyard_py.engines.vllm import Endpoint


class Tokenize(Completions):
    """The dialect `tokenize`."""

    name = "tokenize"
    path = "/tokenize"
    endpoint = Endpoint.TOKENIZE


class Detokenize(Completions):
    """The dialect `detokenize`."""

    name = "detokenize"
    path = "/detokenize"
    endpoint = Endpoint.DETOKENIZE
