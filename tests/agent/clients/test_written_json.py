import pytest

from services.agent.clients.written_json import Member, objects


def parts(text: str) -> list[tuple[dict[str, str], bool]]:
    """The raw members of each object, and whether it is whole."""
    return [({key: m.raw for key, m in each.members.items()}, each.whole) for each in objects(text)]


def only(text: str, key: str) -> Member:
    """The member of the one object in a text."""
    (written,) = objects(text)
    return written.members[key]


class TestWhole:
    @pytest.mark.parametrize(
        ("text", "members"),
        [
            ("{}", {}),
            (' { "a" :  {"b": [1,  2.50]} } ', {"a": '{"b": [1,  2.50]}'}),
            ('{"a": 1, "b": null,}', {"a": "1", "b": "null"}),
            ('{"a": "}"}', {"a": '"}"'}),
            ('{"a": "one\ntwo"}', {"a": '"one\ntwo"'}),
            ('{"a": ' + "9" * 5000 + "}", {"a": "9" * 5000}),
            ('{"a": 1, "a": 2}', {"a": "2"}),
        ],
    )
    def test_values_come_as_they_were_written(self, text: str, members: dict[str, str]) -> None:
        assert parts(text) == [(members, True)]

    def test_objects_that_follow_each_other_are_all_found(self) -> None:
        assert parts('{"a": 1}\n, {"b": 2} and {"c": 3}') == [
            ({"a": "1"}, True),
            ({"b": "2"}, True),
        ]

    def test_a_string_is_told_for_what_it_stands_for(self) -> None:
        assert only(r'{"a": "\u5907\n"}', "a").string == "备\n"
        assert only('{"a": 5}', "a").string is None

    @pytest.mark.parametrize("text", ["", "x", "[1]", '"{}"'])
    def test_where_none_begins_there_is_none(self, text: str) -> None:
        assert parts(text) == []


class TestBroken:
    @pytest.mark.parametrize(
        ("text", "members"),
        [
            ("{", {}),
            ('{"a": 1', {"a": "1"}),
            ('{"a": 1, "b": {"c": "d', {"a": "1", "b": '{"c": "d'}),
            ('{"a": ', {"a": ""}),
            ("{'a': 1}", {}),
            ('{"a": ' + "[" * 100_000, {"a": "[" * 100_000}),
        ],
    )
    def test_what_holds_is_kept(self, text: str, members: dict[str, str]) -> None:
        assert parts(text) == [(members, False)]

    def test_a_value_that_breaks_off_is_not_whole(self) -> None:
        assert not only('{"a": {"b"', "a").whole
        assert only('{"a": {"b": 1}', "a").whole
