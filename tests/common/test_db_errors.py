"""The translation of driver errors."""

import asyncpg
import pytest

from services.common.db_errors import driver_errors, session_errors
from services.common.errors import AbortedError, ServiceError, UnavailableError

SECRET = 'relation "secret" at 10.0.0.7'


def _postgres_error(state: str) -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"C": state, "M": SECRET})


class TestDriverErrors:
    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            ("08000", UnavailableError),
            ("08006", UnavailableError),
            ("53100", UnavailableError),
            ("53200", UnavailableError),
            ("53300", UnavailableError),
            ("57P01", UnavailableError),
            ("57P02", UnavailableError),
            ("57P03", UnavailableError),
            ("57014", UnavailableError),
            ("55P03", UnavailableError),
            ("25006", UnavailableError),
            ("25P03", UnavailableError),
            ("25P04", UnavailableError),
            ("40001", AbortedError),
            ("40P01", AbortedError),
        ],
    )
    def test_states_of_the_server_become_what_a_caller_may_see(
        self, state: str, kind: type[ServiceError]
    ) -> None:
        with pytest.raises(kind) as caught, driver_errors():
            raise _postgres_error(state)

        assert SECRET not in f"{caught.value} {caught.value.metadata}"
        assert caught.value.retry_after is not None
        assert SECRET in str(caught.value.__cause__)

    @pytest.mark.parametrize("state", ["23505", "23503", "22021", "42601", "42P01", "28P01"])
    def test_our_own_faults_pass_unchanged(self, state: str) -> None:
        fault = _postgres_error(state)

        with pytest.raises(asyncpg.PostgresError) as caught, driver_errors():
            raise fault

        assert fault is caught.value

    @pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), BrokenPipeError()])
    def test_a_lost_network_is_unavailable(self, error: Exception) -> None:
        with pytest.raises(UnavailableError), driver_errors():
            raise error

    def test_a_server_of_the_wrong_role_is_unavailable(self) -> None:
        with pytest.raises(UnavailableError), driver_errors():
            raise asyncpg.TargetServerAttributeNotMatched(SECRET)

    def test_other_errors_are_none_of_its_business(self) -> None:
        with pytest.raises(FileNotFoundError), driver_errors():
            raise FileNotFoundError


class TestSessionErrors:
    @pytest.mark.parametrize(
        ("closed", "kind"), [(True, UnavailableError), (False, asyncpg.InterfaceError)]
    )
    def test_a_complaint_about_a_closed_connection_is_its_loss(
        self, closed: bool, kind: type[Exception]
    ) -> None:
        class Session:
            def is_closed(self) -> bool:
                return closed

        with pytest.raises(kind), session_errors(Session()):
            raise asyncpg.InterfaceError("connection is closed")

    def test_a_session_whose_end_was_announced_is_lost(self) -> None:
        class Session:
            def is_closed(self) -> bool:
                return False

        with pytest.raises(UnavailableError), session_errors(Session()):
            raise asyncpg.InternalClientError("cannot switch to state 12")
