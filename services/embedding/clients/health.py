"""The last known state of a backend; each change of it is logged once."""

import structlog

from services.embedding.domain.models import BackendState, ModelSpec


class Health:
    """The state of one backend.

    Attributes:
        state: as of the last check or call.
        why: why the backend is not ready; empty if it is, or if it was never asked.
    """

    def __init__(self, spec: ModelSpec, state: BackendState) -> None:
        self.state = state
        self.why = ""
        self._log = structlog.get_logger("backend").bind(
            backend=spec.kind.value, model=spec.name, dimensions=spec.dimensions
        )
        self._logged = False

    def mark_ready(self, digest: str | None = None) -> None:
        """The backend answers and has the model; without a `digest` the known one stays."""
        state = BackendState(True, self.state.digest if digest is None else digest)
        if self._is_news(state):
            self._log.info("backend ready", digest=state.digest)
        self._set(state, why="")

    def mark_unavailable(self, why: str) -> None:
        """The backend cannot be used, because of `why`."""
        state = BackendState(False, self.state.digest)
        if self._is_news(state):
            self._log.warning("backend not ready", why=why)
        self._set(state, why=why)

    def log_refusal(self, status: int, message: str) -> None:
        """Log a refused call; the backend's own words are for the operator only."""
        self._log.info("call refused", status=status, said=message)

    def _is_news(self, state: BackendState) -> bool:
        return state != self.state or not self._logged

    def _set(self, state: BackendState, *, why: str) -> None:
        self.state = state
        self.why = why
        self._logged = True
