import time

import pytest

from services.agent.domain.hooks.pii.find import Kind, find

KINDS = frozenset(Kind)
SIZE = 1_000_000
KEY = "sk-proj-abcdefghij0123456789"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
# Put together here, so that nobody takes them for real ones.
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
BEGIN = "-----BEGIN " + "PRIVATE KEY-----"
PEM = f"{BEGIN}\nMIIE\n-----END PRIVATE KEY-----"


def texts(text: str, kinds: frozenset[Kind] = KINDS) -> list[tuple[str, Kind]]:
    return [(text[each.start : each.end], each.kind) for each in find(text, kinds)]


WIDE_ID = "１１０１０５１９４９１２３１００２Ｘ"


class TestFound:
    @pytest.mark.parametrize(
        ("text", "found", "kind"),
        [
            ("Write to ann.lee+x@mail.example.com.", "ann.lee+x@mail.example.com", Kind.EMAIL),
            ("邮箱ann@example.cn，谢谢", "ann@example.cn", Kind.EMAIL),
            ("邮箱：张三@example.com。", "张三@example.com", Kind.EMAIL),
            ("to é.dupont@example.fr", "é.dupont@example.fr", Kind.EMAIL),
            ("ann@例子.中国", "ann@例子.中国", Kind.EMAIL),
            ("ann@xn--fsq.xn--fiqs8s!", "ann@xn--fsq.xn--fiqs8s", Kind.EMAIL),
            ("ann＠example．com", "ann＠example．com", Kind.EMAIL),
            ("a\u200bnn@exam\u200bple.com", "a\u200bnn@exam\u200bple.com", Kind.EMAIL),
            ("<ann@example.co.uk>", "ann@example.co.uk", Kind.EMAIL),
            ("card 4111 1111 1111 1111 ok", "4111 1111 1111 1111", Kind.CARD),
            ("card 4111-1111-1111-1111", "4111-1111-1111-1111", Kind.CARD),
            ("4111\u00a01111\u00a01111\u00a01111", "4111\u00a01111\u00a01111\u00a01111", Kind.CARD),
            ("4111\u20131111\u20131111\u20131111", "4111\u20131111\u20131111\u20131111", Kind.CARD),
            ("4111.1111.1111.1111", "4111.1111.1111.1111", Kind.CARD),
            ("号4111\u200b111111111111。", "4111\u200b111111111111", Kind.CARD),
            ("DE89\u00a0370400440532013000", "DE89\u00a0370400440532013000", Kind.IBAN),
            (
                "１１０１０５１９４９１２３１００２Ｘ",
                "１１０１０５１９４９１２３１００２Ｘ",
                Kind.RESIDENT_ID,
            ),
            ("id 110105 19491231 002X", "110105 19491231 002X", Kind.RESIDENT_ID),
            ("::ffff:192.168.1.1/128", "::ffff:192.168.1.1", Kind.IP),
            ("电话１３８００１３８０００。", "１３８００１３８０００", Kind.PHONE),
            ("（010）62345678", "（010）62345678", Kind.PHONE),
            ("138\u00a00013\u00a08000", "138\u00a00013\u00a08000", Kind.PHONE),
            ("Amex 3782 822463 10005", "3782 822463 10005", Kind.CARD),
            ("no 1234 4111 1111 1111 1111", "4111 1111 1111 1111", Kind.CARD),
            ("IBAN DE89 3704 0044 0532 0130 00 please", "DE89 3704 0044 0532 0130 00", Kind.IBAN),
            ("gb82west12345698765432", "gb82west12345698765432", Kind.IBAN),
            ("身份证11010519491231002X。", "11010519491231002X", Kind.RESIDENT_ID),
            ("host 192.168.10.7.", "192.168.10.7", Kind.IP),
            ("at [2001:db8::1]:80", "2001:db8::1", Kind.IP),
            ("call +49 (30) 901820-12 now", "+49 (30) 901820-12", Kind.PHONE),
            ("电话13812345678。", "13812345678", Kind.PHONE),
            ("or 010-62345678", "010-62345678", Kind.PHONE),
            ("or (415) 555-2671", "(415) 555-2671", Kind.PHONE),
            (f"key={KEY}", KEY, Kind.API_KEY),
            (f"id {AWS}", AWS, Kind.API_KEY),
            (f"Authorization: Bearer {'a1' * 16}==", f"{'a1' * 16}==", Kind.API_KEY),
            (f"token {JWT}", JWT, Kind.API_KEY),
            (f"x {PEM} y", PEM, Kind.API_KEY),
            (f"x {BEGIN}\ncut", f"{BEGIN}\ncut", Kind.API_KEY),
        ],
    )
    def test_it_is_found_and_nothing_else(self, text: str, found: str, kind: Kind) -> None:
        assert texts(text) == [(found, kind)]

    @pytest.mark.parametrize(
        "text",
        [
            "4111111111111112",
            "DE89 3704 0044 0532 0130 01",
            "110105194912310021 of 18 digits",
            "On 2026-06-01 at 10:30:45, version 1.2.3, for 1,234,567.89 EUR.",
            "id 018f5e2a-7b3c-7def-8123-456789abcdef",
            "std::vector and a@b, @ann, ann@localhost",
            "order 20260601123456",
            "sk-short and Bearer of news",
            "999.1.1.1",
            "谢谢@张三.很好",
            "１２３４５",
        ],
    )
    def test_what_only_looks_like_it_is_not(self, text: str) -> None:
        assert texts(text) == []

    def test_only_the_kinds_that_are_asked_for(self) -> None:
        text = "ann@example.com 10.0.0.1"

        assert texts(text, frozenset({Kind.IP})) == [("10.0.0.1", Kind.IP)]

    def test_all_of_a_text_in_order(self) -> None:
        text = "a@x.org, +1 415 555 2671, b@x.org; DE89370400440532013000/10.0.0.1"

        assert [kind for _, kind in texts(text)] == [
            Kind.EMAIL,
            Kind.PHONE,
            Kind.EMAIL,
            Kind.IBAN,
            Kind.IP,
        ]

    def test_a_number_that_a_longer_one_follows_is_found(self) -> None:
        text = "+49 30 901820 4111 1111 1111 1111"

        assert [kind for _, kind in texts(text)] == [Kind.PHONE, Kind.CARD]

    def test_the_more_certain_kind_holds_where_two_overlap(self) -> None:
        text = "sk-a4111111111111111x@example.com"

        assert [kind for _, kind in texts(text)] == [Kind.API_KEY]


HOSTILE = {
    "letters": "a",
    "digits": "1",
    "spaced digits": "1 ",
    "groups": "4111 ",
    "bad cards": "4111111111111112 ",
    "grouped bad cards": "4111 1111 1111 1112 ",
    "at": "@",
    "local parts": "a@",
    "labels": "a.",
    "addresses without end": "a@b.",
    "domains": "x@" + "a-" * 30 + ".",
    "local then at": "a" * 63 + "@",
    "colons": ":",
    "hex": "f:",
    "dots": "1.",
    "plus": "+1",
    "pluses": "+",
    "phone starts": "+1 (",
    "keys": "sk-",
    "bearers": "bearer ",
    "begins": BEGIN,
    "half begins": "-----BEGIN ",
    "jwt": "eyJ",
    "jwt parts": "eyJaaaaaaaaaa.",
    "ibans": "DE89 ",
    "ibans run": "DE89",
    "iban without end": "GB82 WEST 1234 5698 7654 33 ",
    "ids": "110105194912310021 ",
    "mixed": "a@1.:+-sk-",
    "blanks": " ",
    "hyphens": "-",
    "Chinese local parts": "张@",
    "Chinese labels": "x@中.",
    "hidden": "1\u200b",
    "wide": "１",
    "mapped addresses": "::f:1.",
}


class TestHostile:
    @pytest.mark.parametrize("pattern", HOSTILE)
    def test_no_text_takes_long(self, pattern: str) -> None:
        """A megabyte takes seconds; were the time to grow with the square, it took hours."""
        unit = HOSTILE[pattern]
        text = unit * (SIZE // len(unit))

        spent = time.process_time()
        find(text, KINDS)
        spent = time.process_time() - spent

        assert spent < 15.0
