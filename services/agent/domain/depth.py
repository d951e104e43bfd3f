"""How many runs may be unfinished before another is accepted."""

from dataclasses import dataclass

from services.agent.domain.errors import QueueFullError


@dataclass(frozen=True, slots=True)
class Depth:
    """How many runs may be unfinished before another is accepted.

    Attributes:
        session: of one session.
        tenant: of one tenant.
    """

    session: int
    tenant: int

    def check(self, *, of_session: int, of_tenant: int) -> None:
        """Refuse one run more where so many are unfinished.

        Raises:
            QueueFullError: the limit of the session is reached, or else that of the tenant.
        """
        if of_session >= self.session:
            raise QueueFullError.of(self.session, scope="session")
        if of_tenant >= self.tenant:
            raise QueueFullError.of(self.tenant, scope="tenant")
