"""What every backend promises, whatever computes its vectors.

A test module takes the suite by subclassing `BackendContract` and providing its fixtures.
"""

import asyncio

import numpy as np
import pytest

from services.embedding.domain.models import Outcome, Purpose, Vector
from services.embedding.domain.ports import Backend

TEXTS = ["The gateway streams messages.", "网关推送消息。", "x", "Straße №5 — 🙂", "a\nb\tc"]


def vectors(outcomes: list[Outcome]) -> list[Vector]:
    """The outcomes, all of which must be vectors."""
    found = [each for each in outcomes if isinstance(each, Vector)]
    assert found == outcomes
    return found


class BackendContract:
    """The suite."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend, able to answer."""
        raise AssertionError("a suite provides its backend")

    async def test_each_text_gets_a_unit_vector_of_the_model_s_size(self, backend: Backend) -> None:
        found = vectors(await backend.embed(TEXTS, Purpose.DOCUMENT))

        assert len(found) == len(TEXTS)
        for each in found:
            assert each.values.dtype == np.float32
            assert each.values.shape == (backend.spec.dimensions,)
            assert np.isclose(np.linalg.norm(each.values), 1, atol=1e-5)

    async def test_vectors_stand_in_the_order_of_the_texts(self, backend: Backend) -> None:
        together = vectors(await backend.embed(TEXTS, Purpose.DOCUMENT))

        for text, joined in zip(TEXTS, together, strict=True):
            (single,) = vectors(await backend.embed([text], Purpose.DOCUMENT))
            assert np.allclose(single.values, joined.values, atol=1e-5)

    async def test_a_single_text_tells_its_tokens(self, backend: Backend) -> None:
        (few,) = vectors(await backend.embed(["one"], Purpose.QUERY))
        (more,) = vectors(await backend.embed(["one two three four"], Purpose.QUERY))

        assert 0 < few.token_count < more.token_count
        assert not more.truncated

    async def test_calls_at_the_same_time_do_not_mix(self, backend: Backend) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(backend.embed([text], Purpose.QUERY)) for text in TEXTS]

        together = vectors(await backend.embed(TEXTS, Purpose.QUERY))
        for task, joined in zip(tasks, together, strict=True):
            (single,) = vectors(task.result())
            assert np.allclose(single.values, joined.values, atol=1e-5)

    async def test_it_is_ready_once_checked(self, backend: Backend) -> None:
        await backend.check()

        assert backend.state.ready
