"""How a backend was when last heard of, with a line in the log for each change."""

import structlog

from services.embedding.domain.models import BackendState, ModelSpec


class Health:
    """The state of one backend.

    Attributes:
        state: how it was when last heard of.
        why: why it is not ready; empty where it is, or was never asked.
    """

    def __init__(self, spec: ModelSpec, state: BackendState) -> None:
        self.state = state
        self.why = ""
        self._log = structlog.get_logger("backend").bind(
            backend=spec.kind.value, model=spec.name, dimensions=spec.dimensions
        )
        self._told = False

    def well(self, digest: str | None = None) -> None:
        """It answers and has the model; `digest` where it was heard anew."""
        state = BackendState(True, self.state.digest if digest is None else digest)
        if state != self.state or not self._told:
            self._log.info("backend ready", digest=state.digest)
        self._become(state, why="")

    def ill(self, why: str) -> None:
        """It cannot be asked."""
        state = BackendState(False, self.state.digest)
        if state != self.state or not self._told:
            self._log.warning("backend not ready", why=why)
        self._become(state, why=why)

    def refused(self, status: int, said: str) -> None:
        """It refused a call; its words are for the operator alone."""
        self._log.info("call refused", status=status, said=said)

    def _become(self, state: BackendState, *, why: str) -> None:
        self.state = state
        self.why = why
        self._told = True
