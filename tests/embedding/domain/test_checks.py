from typing import Any

import numpy as np
import pytest

from services.embedding.domain.checks import outcomes, outcomes_by_index, unit
from services.embedding.domain.models import Fault, Vector

NAN, INF = float("nan"), float("inf")


def only(rows: object) -> object:
    """The outcome of a single text whose model has three dimensions."""
    (outcome,) = outcomes(rows, count=1, dimensions=3)
    return outcome


class TestOutcomes:
    def test_a_good_row_becomes_a_unit_vector_of_float32(self) -> None:
        vector = only([[3, 0.0, 4]])

        assert isinstance(vector, Vector)
        assert [np.float32(0.6), 0.0, np.float32(0.8)] == vector.values.tolist()
        assert vector.values.dtype == np.float32

    def test_rows_keep_their_order(self) -> None:
        first, second = outcomes([[1, 0], [0, 2]], count=2, dimensions=2)

        assert isinstance(first, Vector)
        assert isinstance(second, Vector)
        assert first.values.tolist() == [1, 0]
        assert second.values.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("rows", "fault"),
        [
            (None, Fault("a list of vectors", "nothing")),
            ({}, Fault("a list of vectors", "an object")),
            ("[[1, 0, 0]]", Fault("a list of vectors", "text")),
            ([], Fault("1 vector", "0 vectors")),
            ([[1, 0, 0], [0, 1, 0]], Fault("1 vector", "2 vectors")),
            ([[1, 0]], Fault("3 numbers", "2 numbers")),
            ([[1, 0, 0, 0]], Fault("3 numbers", "4 numbers")),
            ([[]], Fault("3 numbers", "no numbers")),
            ([None], Fault("3 numbers", "nothing")),
            ([7], Fault("3 numbers", "a number")),
            ([[1, None, 0]], Fault("numbers only", "nothing")),
            ([[1, "NaN", 0]], Fault("numbers only", "text")),
            ([[1, "0.5", 0]], Fault("numbers only", "text")),
            ([[1, True, 0]], Fault("numbers only", "true or false")),
            ([[1, [0], 0]], Fault("numbers only", "a list")),
            ([[1, NAN, 0]], Fault("finite numbers", "NaN")),
            ([[1, -INF, 0]], Fault("finite numbers", "infinity")),
            ([[1e300, 1e300, 0]], Fault("finite numbers", "numbers too large")),
            ([[10**400, 0, 0]], Fault("finite numbers", "a number too large")),
            ([[0, 0.0, -0.0]], Fault("a direction", "only zeros")),
            ([[1e-20, 0, 0]], Fault("a direction", "only zeros")),
        ],
    )
    def test_what_is_no_vector_is_told(self, rows: object, fault: Fault) -> None:
        assert fault == only(rows)

    def test_a_bad_row_concerns_its_text_alone(self) -> None:
        good, bad, empty = outcomes([[1, 0], [NAN, 0], []], count=3, dimensions=2)

        assert isinstance(good, Vector)
        assert Fault("finite numbers", "NaN") == bad
        assert Fault("2 numbers", "no numbers") == empty

    def test_a_row_of_another_size_casts_doubt_on_all(self) -> None:
        found = outcomes([[1, 0], [1, 0, 0]], count=2, dimensions=2)

        assert [Fault("2 numbers", "3 numbers")] * 2 == found

    def test_too_few_rows_give_nobody_a_vector(self) -> None:
        found = outcomes([[1, 0], [0, 1]], count=3, dimensions=2)

        assert [Fault("3 vectors", "2 vectors")] * 3 == found

    def test_numbers_at_the_edge_of_float32_survive(self) -> None:
        vector = only([[3e38, 3e38, 0]])

        assert isinstance(vector, Vector)
        assert np.isclose(np.linalg.norm(vector.values), 1)


class TestOutcomesByIndex:
    def test_each_vector_stands_where_its_index_says(self) -> None:
        items = [
            {"index": 2, "embedding": [0, 0, 1]},
            {"index": 0, "embedding": [1, 0, 0]},
            {"index": 1, "embedding": [0, 1, 0]},
        ]

        found = outcomes_by_index(items, count=3, dimensions=3)

        assert [each.values.argmax() for each in found if isinstance(each, Vector)] == [0, 1, 2]

    def test_items_without_any_index_are_taken_as_they_come(self) -> None:
        items = [{"embedding": [1, 0]}, {"embedding": [0, 1]}]

        found = outcomes_by_index(items, count=2, dimensions=2)

        assert [each.values.argmax() for each in found if isinstance(each, Vector)] == [0, 1]

    @pytest.mark.parametrize(
        ("indexes", "received"),
        [
            ([1, 2], "1, 2"),
            ([0, 0], "0, 0"),
            ([0, None], "0, nothing"),
            ([-1, 0], "-1, 0"),
            (["0", "1"], "text, text"),
            ([False, True], "true or false, true or false"),
            ([0.0, 1.0], "a number, a number"),
            ([[0], {}], "a list, an object"),
        ],
    )
    def test_indexes_that_are_not_each_once_give_nobody_a_vector(
        self, indexes: list[object], received: str
    ) -> None:
        items = [{"index": index, "embedding": [1, 0]} for index in indexes]

        found = outcomes_by_index(items, count=2, dimensions=2)

        assert found == [Fault("each index from 0 to 1 once", received)] * 2

    def test_a_wrong_number_of_items_is_told_before_their_indexes(self) -> None:
        items = [{"index": 0, "embedding": [1, 0]}]

        found = outcomes_by_index(items, count=2, dimensions=2)

        assert found == [Fault("2 vectors", "1 vector")] * 2

    @pytest.mark.parametrize("items", [None, {}, "x", 3])
    def test_what_is_no_list_gives_nobody_a_vector(self, items: object) -> None:
        (found,) = outcomes_by_index(items, count=1, dimensions=2)

        assert isinstance(found, Fault)
        assert found.expected == "a list of vectors"

    def test_items_that_are_no_objects_have_no_vector(self) -> None:
        found = outcomes_by_index([None, 7], count=2, dimensions=2)

        assert found == [Fault("2 numbers", "nothing")] * 2


class TestUnit:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_any_float_type_comes_out_as_unit_float32(self, dtype: Any) -> None:
        vector = unit(np.array([1, 2, 2], dtype=dtype))

        assert isinstance(vector, Vector)
        assert np.allclose(vector.values, [1 / 3, 2 / 3, 2 / 3])

    def test_an_array_with_nan_has_none(self) -> None:
        assert Fault("finite numbers", "NaN") == unit(np.array([NAN, 1.0]))
