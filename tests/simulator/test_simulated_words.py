"""The stand-ins for tokenizer and model."""

from hypothesis import given
from hypothesis import strategies as st

from serving.simulator import words


@given(st.text(max_size=300))
def test_tokens_cover_the_text_and_are_the_same_every_time(text: str) -> None:
    assert "".join(words.pieces(text)) == text
    tokens = words.token_ids(text)
    assert tokens == words.token_ids(text)
    assert len(tokens) == len(words.pieces(text)) >= 1
    assert all(0 <= each < words.VOCABULARY for each in tokens)


def test_plain_words_are_one_token_each() -> None:
    assert len(words.token_ids("the river moves under a stone")) == 6


@given(st.lists(st.integers(0, 5), max_size=60), st.lists(st.integers(0, 5), max_size=60), st.integers(1, 8))
def test_prefix_keys_agree_exactly_as_far_as_the_tokens_do(one: list[int], other: list[int], block: int) -> None:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    ours, theirs = words.prefix_keys(one, block), words.prefix_keys(other, block)
    assert (len(ours), len(theirs)) == (len(one) // block, len(other) // block)
    shared = same // block
    assert ours[:shared] == theirs[:shared]
    assert not set(ours[shared:]) & set(theirs[shared:])


@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3))
def test_a_stop_is_found_with_the_token_that_completes_it(voice: int, limit: int, stops: list[str]) -> None:
    said = [words.word(voice, index) for index in range(limit)]
    stops = [*stops, said[-1] + "!"]
    expected = next((count for count in range(1, limit + 1) if any(stop in "".join(said[:count]) for stop in stops)), None)
    assert words.tokens_until(voice, limit, stops) == expected


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.data())
def test_a_stop_that_spans_tokens_is_found(voice: int, limit: int, data: st.DataObject) -> None:
    text = "".join(words.word(voice, index) for index in range(limit))
    begin = data.draw(st.integers(0, len(text) - 2))
    stop = text[begin : begin + data.draw(st.integers(1, 25))]
    found = words.tokens_until(voice, limit, [stop])
    assert found is not None
    assert stop in "".join(words.word(voice, index) for index in range(found))
    assert stop not in "".join(words.word(voice, index) for index in range(found - 1))
