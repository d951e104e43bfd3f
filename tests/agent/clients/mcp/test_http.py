import pytest
import structlog

from services.agent.domain.errors import McpUnavailableError
from tests.agent.clients.mcp.fixtures import http, opened
from tests.agent.fake_mcp import fake_http

SECRET = "Bearer secret-7"
VERSIONS = ["2025-11-25", "2026-07-28"]


@pytest.mark.parametrize("version", VERSIONS)
class TestCredentials:
    async def test_they_are_sent_with_each_request(self, version: str) -> None:
        async with (
            fake_http(version) as running,
            opened(http(running.url, Authorization=SECRET)) as fake,
        ):
            await fake.call("echo", text="hi")

        assert {headers.get("authorization") for headers in running.fake.headers} == {SECRET}

    async def test_a_redirect_to_another_origin_gets_neither_them_nor_a_request(
        self, version: str
    ) -> None:
        async with fake_http(version) as thief, fake_http(version) as running:
            running.redirect = thief.url
            with structlog.testing.capture_logs() as logs:
                async with opened(http(running.url, Authorization=SECRET)) as fake:
                    with pytest.raises(McpUnavailableError) as refused:
                        await fake.servers.catalogue("fake")

        assert thief.fake.headers == []
        assert "not followed" in refused.value.message
        assert SECRET not in f"{logs} {refused.value}"

    async def test_two_servers_get_their_own(self, version: str) -> None:
        async with fake_http(version) as one, fake_http(version) as two:
            first = http(one.url, name="one", Authorization="a")
            async with opened(first, http(two.url, name="two", Authorization="b")) as both:
                await both.servers.catalogue("one")
                await both.servers.catalogue("two")

        assert {headers["authorization"] for headers in one.fake.headers} == {"a"}
        assert {headers["authorization"] for headers in two.fake.headers} == {"b"}
