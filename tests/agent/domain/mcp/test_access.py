from dataclasses import replace

import pytest

from services.agent.domain.errors import (
    McpServerNotBoundError,
    McpToolChangedError,
    McpUnavailableError,
    UnknownMcpServerError,
)
from services.agent.domain.mcp.access import McpAccess
from services.agent.domain.mcp.models import McpConsent
from services.agent.domain.models import Agent, AgentSettings, McpBinding, Visibility
from services.common.errors import NotFoundError, PermissionDeniedError
from services.common.identity import Identity
from tests.agent.domain.mcp.tools import Shown, listed
from tests.contracts.agent_stores import ALICE, BOB, memory_stores


class Desk:
    """Servers, and a store with one agent."""

    def __init__(self) -> None:
        self.servers = Shown({"files": [listed("read")], "web": [listed("get")]})
        self.store = memory_stores().agents
        self.access = McpAccess(self.servers, self.store)

    async def agent(self, *names: str, shared: bool = False) -> Agent:
        bindings = await self.access.bound([McpBinding(name) for name in names])
        visibility = Visibility.TENANT if shared else Visibility.PRIVATE
        settings = AgentSettings("Helper", mcp_servers=bindings, visibility=visibility)
        return await self.store.create(ALICE, settings)

    async def consents(
        self, agent: Agent, identity: Identity = ALICE
    ) -> dict[str, McpConsent | None]:
        servers = await self.access.list(identity, agent.id)
        return {
            tool.name: server.consents.get(tool.digest)
            for server in servers
            for tool in (server.catalogue.tools if server.catalogue else ())
        }


@pytest.fixture
def desk() -> Desk:
    return Desk()


class TestList:
    async def test_without_an_agent_no_consent_is_told(self, desk: Desk) -> None:
        servers = await desk.access.list(ALICE)

        assert [each.name for each in servers] == ["files", "web"]
        assert [each.consents for each in servers] == [{}, {}]
        assert [each.bound for each in servers] == [False, False]

    async def test_with_one_its_consent_is(self, desk: Desk) -> None:
        agent = await desk.agent("files")

        assert await desk.consents(agent) == {"files_read": McpConsent.APPROVED, "web_get": None}

    async def test_a_server_that_is_down_says_why(self, desk: Desk) -> None:
        agent = await desk.agent("files")
        desk.servers.down = frozenset({"files"})

        files, web = await desk.access.list(ALICE, agent.id)

        assert (files.catalogue, files.bound) == (None, True)
        assert "it is down" in files.error
        assert web.catalogue is not None

    async def test_another_s_agent_is_not_found(self, desk: Desk) -> None:
        with pytest.raises(NotFoundError):
            await desk.access.list(BOB, (await desk.agent("files")).id)


class TestBound:
    async def test_an_unknown_server_is_named(self, desk: Desk) -> None:
        with pytest.raises(UnknownMcpServerError, match=r"agent\.mcp_servers\[1\].*known: files"):
            await desk.access.bound([McpBinding("web"), McpBinding("nope")])

    async def test_nobody_can_consent_to_what_is_not_seen(self, desk: Desk) -> None:
        desk.servers.down = frozenset({"web"})

        with pytest.raises(McpUnavailableError):
            await desk.access.bound([McpBinding("web")])

    async def test_what_is_bound_already_stays_as_it_was_approved(self, desk: Desk) -> None:
        before = await desk.access.bound([McpBinding("files")])
        desk.servers.tools["files"] = [listed("read", "Pulled.")]
        desk.servers.down = frozenset({"files"})

        files, web = await desk.access.bound([McpBinding("files"), McpBinding("web")], before)

        assert files == before[0]
        assert list(web.approved) == ["get"]


class TestApprove:
    async def test_a_pulled_rug_waits_until_it_is_seen(self, desk: Desk) -> None:
        agent = await desk.agent("files")
        desk.servers.tools["files"] = [listed("read", "Pulled."), listed("extra")]
        assert await desk.consents(agent) == {
            "files_extra": McpConsent.NEW,
            "files_read": McpConsent.CHANGED,
            "web_get": None,
        }
        tools = {t.name: t for t in (await desk.servers.catalogue("files")).tools}

        server = await desk.access.approve(ALICE, agent.id, "files", [tools["files_read"].digest])

        assert server.consents == {
            tools["files_read"].digest: McpConsent.APPROVED,
            tools["files_extra"].digest: McpConsent.NEW,
        }

    async def test_what_has_changed_again_is_not_approved(self, desk: Desk) -> None:
        agent = await desk.agent("files")

        with pytest.raises(McpToolChangedError):
            await desk.access.approve(ALICE, agent.id, "files", ["0" * 64])

    async def test_only_whoever_may_change_the_agent_may(self, desk: Desk) -> None:
        agent = await desk.agent("files", shared=True)
        (tool,) = (await desk.servers.catalogue("files")).tools

        with pytest.raises(PermissionDeniedError):
            await desk.access.approve(BOB, agent.id, "files", [tool.digest])

    async def test_the_server_has_to_be_the_agent_s(self, desk: Desk) -> None:
        agent = await desk.agent("files")
        (tool,) = (await desk.servers.catalogue("web")).tools

        with pytest.raises(McpServerNotBoundError):
            await desk.access.approve(ALICE, agent.id, "web", [tool.digest])
        with pytest.raises(UnknownMcpServerError):
            await desk.access.approve(ALICE, agent.id, "nope", [tool.digest])

    async def test_other_servers_keep_theirs(self, desk: Desk) -> None:
        agent = await desk.agent("files", "web")
        desk.servers.tools["files"] = [listed("read"), listed("extra")]
        tools = (await desk.servers.catalogue("files")).tools

        await desk.access.approve(ALICE, agent.id, "files", [each.digest for each in tools])

        stored = (await desk.store.get(ALICE, agent.id)).settings.mcp_servers
        assert [sorted(each.approved) for each in stored] == [["extra", "read"], ["get"]]
        assert replace(stored[1]) == agent.settings.mcp_servers[1]
