from dataclasses import replace

import pytest

from services.embedding.domain.batching import Batcher
from services.embedding.domain.errors import UnknownModelError
from services.embedding.domain.models import BatchLimits, ModelName
from services.embedding.domain.registry import Registry
from tests.embedding.memory_backend import SPEC, MemoryBackend


def make_batcher(name: str) -> Batcher:
    return Batcher(
        MemoryBackend(replace(SPEC, name=ModelName(name))),
        BatchLimits(max_texts=1, max_chars=1, alone_above=1),
        concurrency=1,
        max_pending_texts=1,
        max_pending_chars=1,
    )


class TestRegistry:
    def test_a_model_is_found_by_its_name(self) -> None:
        one, two = make_batcher("one"), make_batcher("two")
        registry = Registry([one, two], default=ModelName("two"))

        assert one is registry.find("one")
        assert two is registry.find("two")

    def test_no_name_stands_for_the_default(self) -> None:
        one, two = make_batcher("one"), make_batcher("two")

        assert two is Registry([one, two], default=ModelName("two")).find("")

    def test_an_unknown_name_is_answered_with_the_known_ones(self) -> None:
        registry = Registry([make_batcher("b"), make_batcher("a")], default=ModelName("a"))

        with pytest.raises(UnknownModelError, match="'c' here; there are: a, b") as raised:
            registry.find("c")

        assert raised.value.metadata == {"model": "c", "known": "a,b"}

    def test_models_are_listed_by_name(self) -> None:
        b, a = make_batcher("b"), make_batcher("a")

        assert [a, b] == Registry([b, a], default=ModelName("b")).all()

    def test_two_models_of_one_name_are_refused(self) -> None:
        with pytest.raises(ValueError, match="two backends"):
            Registry([make_batcher("a"), make_batcher("a")], default=ModelName("a"))

    def test_a_default_that_is_not_served_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no backend serves the default"):
            Registry([make_batcher("a")], default=ModelName("b"))
