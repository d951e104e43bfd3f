import json

import pytest

from services.agent.clients.mcp.surrogates import Mender, mended


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'"\uDE00a"', "\ufffda"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'"\\\ud83d\n"', "\\\ufffd\n"),
        (rb'"\u00e9\\"', "é\\"),
        (b'"plain"', "plain"),
    ],
)
class TestMended:
    def test_halves_alone_are_replaced(self, text: bytes, meant: str) -> None:
        assert json.loads(mended(text)) == meant

    def test_it_makes_no_difference_where_the_text_is_cut(self, text: bytes, meant: str) -> None:
        for size in range(1, len(text)):
            mender = Mender()
            pieces = [text[start : start + size] for start in range(0, len(text), size)]
            got = b"".join([*map(mender.mended, pieces), mender.rest()])

            assert json.loads(got) == meant


def test_what_cannot_be_part_of_an_escape_is_passed_on_at_once() -> None:
    mender = Mender()

    assert mender.mended(rb'data: "a\ud8') == b'data: "a'
    assert mender.mended(rb'3d"') == rb'\ufffd"'
    assert mender.rest() == b""


def test_a_half_at_the_very_end_is_replaced() -> None:
    assert mended(rb"\ud83d") == rb"\ufffd"
    assert mended(rb"\ud8") == rb"\ud8"
