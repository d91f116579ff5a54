from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.simulator.tokenizer import (
    IM_START,
    SPECIAL_TOKENS,
    VOCABULARY_SIZE,
    TextDecoder,
    decode,
    encode,
    strip_special,
    token_name,
    token_text,
)

TEXTS = st.lists(st.one_of(st.text(), st.sampled_from(list(SPECIAL_TOKENS.values())))).map("".join)


@given(TEXTS)
def test_decoding_gives_the_text_back(text: str) -> None:
    ids = encode(text)
    assert decode(ids) == text
    assert all(0 <= token < VOCABULARY_SIZE for token in ids)


@given(TEXTS, TEXTS)
def test_a_special_token_separates_what_is_around_it(before: str, after: str) -> None:
    assert encode(f"{before}<|im_start|>{after}") == [*encode(before), IM_START, *encode(after)]


@given(TEXTS)
def test_stripped_text_has_no_special_token(text: str) -> None:
    assert not SPECIAL_TOKENS.keys() & set(encode(strip_special(text)))


def test_stripping_does_not_make_a_special_token() -> None:
    assert strip_special("<thi<think>nk>") == ""


def test_a_character_appears_with_its_last_byte() -> None:
    decoder = TextDecoder()
    assert [decoder.push(token) for token in encode("日a")] == ["", "", "日", "a"]


def test_an_unfinished_character_becomes_a_replacement() -> None:
    assert decode([*encode("日")[:2], IM_START]) == "�<|im_start|>"
    assert token_text(0xE6) == ""


def test_unused_ids_decode_to_nothing() -> None:
    assert decode([300, 104, 2038]) == "h"
    assert token_name(300) == ""


def test_lone_surrogates_become_question_marks() -> None:
    assert decode(encode("a\ud800b")) == "a?b"


def test_names_are_written_in_the_byte_level_alphabet() -> None:
    assert [token_name(token) for token in encode(" a\n<think>")] == ["Ġ", "a", "Ċ", "<think>"]
