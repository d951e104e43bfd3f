"""The error root."""

import inspect

import pytest

from services.common import errors
from services.common.errors import Code, FieldViolation, InvalidArgumentError, ServiceError

CLASSES = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, ServiceError)
]


class TestServiceError:
    @pytest.mark.parametrize("error", CLASSES, ids=lambda each: each.__name__)
    def test_every_error_can_be_made_of_a_sentence_alone(self, error: type[ServiceError]) -> None:
        made = error("What went wrong.")

        assert str(made) == made.message == "What went wrong."
        assert (made.metadata, made.violations, made.retry_after) == ({}, (), None)

    def test_every_code_has_its_error(self) -> None:
        assert set(Code) == {error.code for error in CLASSES}

    def test_metadata_is_kept_as_it_was(self) -> None:
        given = {"id": "1"}
        made = ServiceError("x", metadata=given)
        given["id"] = "2"

        assert made.metadata == {"id": "1"}


class TestInvalidArgumentError:
    def test_one_field_is_named_in_the_message_and_in_the_violation(self) -> None:
        error = InvalidArgumentError.of_field("agent.model", "must be known")

        assert error.message == "agent.model: must be known"
        assert error.violations == (FieldViolation("agent.model", "must be known"),)
