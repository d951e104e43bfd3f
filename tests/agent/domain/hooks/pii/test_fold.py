from services.agent.domain.hooks.pii.fold import folded


def test_one_way_of_writing_stands_for_all() -> None:
    assert folded("（１３８\u00a0Ａ＠ｂ．c）\u2013").text == "(138 A@b.c)-"


def test_what_is_hidden_is_left_out_and_places_are_known() -> None:
    text = "x\u200b1\u20602\ufeffy"
    found = folded(text)

    assert found.text == "x12y"
    assert text[slice(*found.span(1, 3))] == "1\u20602"


def test_a_plain_text_stays_as_it_is() -> None:
    text = "plain"
    found = folded(text)

    assert found.text is text
    assert found.span(1, 3) == (1, 3)
