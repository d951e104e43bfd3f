"""HTTP, asked of a whole gateway."""

from collections.abc import Mapping

import httpx

from services.common.clock import now
from services.gateway.domain.status import StatusBoard
from services.gateway.web.app import make_app
from services.gateway.web.routes import routes
from tests.gateway.installation import Installation


async def get(gateway: Installation, path: str) -> httpx.Response:
    """The answer to a request."""
    async with httpx.AsyncClient(base_url=gateway.http) as client:
        return await client.get(path)


class TestHealth:
    async def test_a_gateway_is_alive_whatever_stands_behind_it(
        self, gateway: Installation
    ) -> None:
        await gateway.agent_server.kill()

        answer = await get(gateway, "/healthz")

        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    async def test_it_is_ready_when_all_is_well(self, gateway: Installation) -> None:
        answer = await get(gateway, "/readyz")

        assert answer.status_code == 200
        assert answer.json() == {
            "ready": True,
            "draining": False,
            "components": {"database": True, "agent": True, "knowledge": True},
        }

    async def test_it_names_what_is_not(self, gateway: Installation) -> None:
        await gateway.knowledge_server.kill()

        answer = await get(gateway, "/readyz")

        assert answer.status_code == 503
        assert answer.json()["components"] == {"database": True, "agent": True, "knowledge": False}


class TestPage:
    async def test_it_shows_the_services_and_needs_no_script(self, gateway: Installation) -> None:
        answer = await get(gateway, "/")

        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for part in ("gateway", "database", "agent", "knowledge", "serving", "version"):
            assert part in answer.text
        assert "<script" not in answer.text

    async def test_its_style_is_there(self, gateway: Installation) -> None:
        answer = await get(gateway, "/static/style.css")

        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/css")


class TestHeaders:
    async def test_every_answer_is_safe_for_browsers(self, gateway: Installation) -> None:
        for path in ("/", "/healthz", "/readyz", "/static/style.css", "/nowhere"):
            answer = await get(gateway, path)

            policy = dict(
                part.strip().partition(" ")[::2]
                for part in answer.headers["content-security-policy"].split(";")
            )
            assert policy == {
                "default-src": "'none'",
                "script-src": "'self'",
                "style-src": "'self'",
                "img-src": "'self'",
                "connect-src": "'self'",
                "frame-ancestors": "'none'",
                "base-uri": "'none'",
                "form-action": "'self'",
                "require-trusted-types-for": "'script'",
            }
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "server" not in answer.headers


class TestErrors:
    async def test_a_fault_of_ours_betrays_nothing(self) -> None:
        def fail() -> Mapping[str, int]:
            raise RuntimeError("secret")

        board = StatusBoard({}, open_calls=fail, hold_seconds=1, clock=now)
        app = make_app(routes(board, version="1", clock=now))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)

        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.get("/")

        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        assert "content-security-policy" in answer.headers
