import re

import pytest

from switchyard_py.simulator.pattern_sample import UnsupportedPatternError, sample_pattern

PATTERNS = [
    "^[a-z ]+$",
    r"\d{4}-\d{2}-\d{2}",
    r"(Paris|Rome) [123]",
    r"(<tool_call>\n\{\"name\": \"f\"\}\n</tool_call>\n?){2}",
    r"[^abc]{2,5}x*?",
    r"日本[é☃]+",
    r"(?:a|b)+\.\w\s\S",
    r"[]x]",
    r"a{,3}b{2}\n\t",
    r"^$",
    r"[\w.+-]+@[\w-]+\.[\w.]+",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_sample_matches(pattern: str) -> None:
    assert re.fullmatch(pattern, sample_pattern(pattern))


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "(a", "a)", "[a", r"\p{L}", "*", "a\\", r"[z-a]", r"(?<n>x)"])
def test_other_syntax_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        sample_pattern(pattern)
