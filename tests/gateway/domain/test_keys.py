"""The form of keys."""

import random

import pytest

from services.gateway.domain.keys import SECRET_BYTES, compose, digest_of, key_id_of, parse

ID = key_id_of("0190a5b8-0000-7000-8000-0000000000ff")
KEY = compose(ID, bytes(range(SECRET_BYTES)))


class TestCompose:
    def test_it_shows_its_kind_and_its_id(self) -> None:
        kind, key_id, secret = KEY.split("_")

        assert (kind, key_id) == ("cm", "0190a5b8000070008000" + "0000000000ff")
        assert len(secret) == 43 + 6

    @pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
    def test_every_secret_has_the_same_length(self, secret: bytes) -> None:
        assert len(compose(ID, secret)) == len(KEY)
        assert parse(compose(ID, secret)) is not None


class TestParse:
    def test_a_key_gives_its_id_and_digest(self) -> None:
        credential = parse(KEY)

        assert credential is not None
        assert credential.key_id == ID
        assert credential.digest == digest_of(KEY)
        assert credential.proves(digest_of(KEY))
        assert not credential.proves(digest_of(KEY[:-1]))

    def test_any_single_mistake_is_found(self) -> None:
        chance = random.Random(7)
        for place in range(len(KEY)):
            other = chance.choice([each for each in "aZ09_" if each != KEY[place]])

            assert parse(KEY[:place] + other + KEY[place + 1 :]) is None

    @pytest.mark.parametrize(
        "text", ["", "cm_", KEY[:-1], KEY + "0", KEY + "\n", f" {KEY}", KEY.upper(), "ключ", "\0"]
    )
    def test_nothing_else_is_a_key(self, text: str) -> None:
        assert parse(text) is None
