from structlog.testing import capture_logs

from services.embedding.clients.health import Health
from services.embedding.domain.models import BackendState
from tests.embedding.memory_backend import SPEC


class TestHealth:
    def test_each_change_is_logged_once(self) -> None:
        health = Health(SPEC, BackendState(ready=False))

        with capture_logs() as logs:
            for _ in range(3):
                health.mark_unavailable("it is down")
            for _ in range(3):
                health.mark_ready("sha256:1")
            health.mark_ready()
            health.mark_ready("sha256:2")
            health.mark_unavailable("it is down")

        assert [each["event"] for each in logs] == [
            "backend not ready",
            "backend ready",
            "backend ready",
            "backend not ready",
        ]

    def test_a_digest_once_heard_stays(self) -> None:
        health = Health(SPEC, BackendState(ready=False))

        health.mark_ready("sha256:1")
        health.mark_unavailable("it is down")
        health.mark_ready()

        assert health.state == BackendState(True, "sha256:1")
