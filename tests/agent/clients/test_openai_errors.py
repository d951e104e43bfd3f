from datetime import UTC, datetime
from typing import Any

import pytest

from services.agent.clients.model_http import (
    ConnectTimeoutError,
    NotBegunError,
    ReplyTooLargeError,
    StalledReplyError,
    UnreachableError,
)
from services.agent.clients.openai_errors import Failure, failure
from services.agent.clients.openai_reply import ReportedError, UnreadableReplyError
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)


def clock() -> datetime:
    return datetime(2026, 6, 1, 10, 30, tzinfo=UTC)


def meant(error: Exception) -> Failure:
    found = failure(error, model="m", secret="hunter2", clock=clock)
    assert found is not None
    return found


def status(code: int, body: Any = None, retry_after: str = "") -> ReportedError:
    return ReportedError(code, body, retry_after)


class TestFailure:
    @pytest.mark.parametrize(
        ("error", "kind", "retry"),
        [
            (NotBegunError(), "timeout", True),
            (ConnectTimeoutError(), "connect timeout", True),
            (StalledReplyError(), "stalled reply", True),
            (UnreachableError(), "connection", True),
            (UnreadableReplyError(), "unreadable reply", True),
            (ReplyTooLargeError(), "reply too large", False),
            (ReportedError(503, {}), "status 503", True),
            (status(500), "status 500", True),
            (status(529), "status 529", True),
        ],
    )
    def test_a_server_that_cannot_answer_is_unavailable(
        self, error: Exception, kind: str, retry: bool
    ) -> None:
        found = meant(error)

        assert isinstance(found.error, ModelUnavailableError)
        assert (found.kind, found.retry) == (kind, retry)

    def test_an_empty_reply_is_final_and_told_as_such(self) -> None:
        error = EmptyAnswerError("nothing")

        assert meant(error) == Failure(error, "empty reply", retry=False)

    @pytest.mark.parametrize("code", [300, 400, 401, 402, 403, 404, 413, 422])
    def test_a_refusal_is_final(self, code: int) -> None:
        found = meant(status(code))

        assert isinstance(found.error, ModelRejectedError)
        assert not found.retry

    @pytest.mark.parametrize(
        "body",
        [
            {"code": "context_length_exceeded", "message": "x"},
            {"message": "the request exceeds the available context size"},
        ],
    )
    def test_a_request_too_long_is_told_apart(self, body: Any) -> None:
        assert isinstance(meant(status(400, body)).error, ContextTooLongError)

    @pytest.mark.parametrize(
        ("said", "limit"),
        [
            ("maximum context length is 8192 tokens. However, you requested 9000 tokens", 8192),
            ("the request exceeds the available context size (4096 tokens), try more", 4096),
            ("the context length is exceeded", None),
        ],
    )
    def test_how_much_the_model_reads_is_taken_from_what_it_says(
        self, said: str, limit: int | None
    ) -> None:
        error = meant(status(400, {"message": said})).error

        assert isinstance(error, ContextTooLongError)
        assert error.context_tokens == limit

    def test_what_is_not_known_is_not_explained_away(self) -> None:
        assert failure(KeyError("x"), model="m", secret="", clock=clock) is None


class TestWords:
    def test_the_server_s_reason_is_told(self) -> None:
        found = meant(status(400, {"message": "Unsupported parameter:\n 'top_p'."}))

        assert found.error.message == (
            "The server of model 'm' refused the request (status 400): "
            "Unsupported parameter: 'top_p'."
        )

    @pytest.mark.parametrize(
        "text",
        ["key hunter2 is wrong", "sk-abcdefgh", "Bearer abc", "abc***xyz", "A" * 40],
    )
    def test_nothing_like_a_key_is_told(self, text: str) -> None:
        assert "[…]" in meant(status(400, {"message": text})).error.message

    @pytest.mark.parametrize("code", [401, 403])
    def test_of_a_refused_key_nothing_is_told(self, code: int) -> None:
        found = meant(status(code, {"message": "whatever"}))

        assert "whatever" not in found.error.message

    @pytest.mark.parametrize("body", [None, "<html>raw</html>", {"message": {"a": 1}}, {}, []])
    def test_what_is_no_sentence_is_not_told(self, body: Any) -> None:
        found = meant(status(400, body))

        assert found.error.message == "The server of model 'm' refused the request (status 400)."

    def test_a_long_reason_is_cut(self) -> None:
        assert len(meant(status(400, {"message": "why " * 1000})).error.message) < 400


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("7", 7.0),
            ("0.5", 0.5),
            ("-3", 0.0),
            ("Mon, 01 Jun 2026 10:30:09 GMT", 9.0),
            ("Mon, 01 Jun 2026 10:00:00 GMT", 0.0),
            ("soon", 0.0),
            ("nan", 0.0),
            ("inf", 0.0),
        ],
    )
    def test_seconds_and_dates_are_read(self, value: str, seconds: float) -> None:
        assert meant(status(429, retry_after=value)).retry_after == seconds

    def test_without_the_header_there_is_no_wish(self) -> None:
        assert meant(status(429)).retry_after == 0
