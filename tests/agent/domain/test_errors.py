"""What an error tells a program beside its words."""

import pytest

from services.agent.domain import errors
from services.common.errors import ServiceError


@pytest.mark.parametrize(
    ("error", "metadata"),
    [
        (
            errors.UnknownKnowledgeBaseError.of("agent.knowledge_base_ids[0]", "kb"),
            {"knowledge_base_id": "kb"},
        ),
        (errors.RunInProgressError.of("run"), {"run_id": "run"}),
        (errors.AgentDeletedError.of("agent"), {"agent_id": "agent"}),
        (errors.RunNotFailedError.of("run", "FINISHED"), {"run_id": "run", "state": "FINISHED"}),
        (errors.QueueFullError.of(5, scope="tenant"), {"limit": "5", "scope": "tenant"}),
        (errors.SequenceAheadError.of(7), {"last_sequence": "7"}),
        (errors.SlowConsumerError.after(0), {"resume_after_sequence": "0"}),
        (errors.SlowConsumerError.after(None), {}),
    ],
    ids=lambda value: value.reason if isinstance(value, ServiceError) else "",
)
def test_what_it_is_about_can_be_read_by_a_program(
    error: ServiceError, metadata: dict[str, str]
) -> None:
    assert error.metadata == metadata


def test_a_field_is_named() -> None:
    [violation] = errors.UnknownKnowledgeBaseError.of("knowledge_base_ids[2]", "kb").violations

    assert violation.field == "knowledge_base_ids[2]"


def test_a_full_queue_is_worth_another_try() -> None:
    error = errors.QueueFullError.of(5, scope="session")

    assert error.retry_after is not None
    assert error.retry_after > 0
