from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from services.agent.clients.models import Models
from services.agent.clients.offline_model import OfflineModel
from services.agent.domain import hints
from services.agent.domain.agents import Agents
from services.agent.domain.chat import KnowledgeBase, Passage
from services.agent.domain.errors import (
    KnowledgeUnavailableError,
    UnknownHookError,
    UnknownKnowledgeBaseError,
    UnknownModelError,
    UnknownToolError,
)
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.hooks.shipped import SHIPPED
from services.agent.domain.mcp.access import McpAccess
from services.agent.domain.models import (
    AgentSettings,
    ApprovalMode,
    HookSetting,
    KnowledgeBaseId,
    RunLimits,
    ToolApproval,
)
from services.agent.domain.patch import paths
from services.agent.domain.stores import RequestKey
from services.agent.domain.tools.current_time import current_time_tool
from services.agent.domain.tools.registry import Tools
from services.common.clock import now
from services.common.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from services.common.identity import Identity
from services.common.ids import new_id
from services.common.paging import Page
from tests.agent.domain.mcp.tools import Shown
from tests.agent.hints import LocalHints
from tests.contracts.agent_stores import ALICE, BOB, PRIVATE, SHARED, memory_stores

SEEN, HIDDEN = KnowledgeBaseId(new_id()), KnowledgeBaseId(new_id())


class OneBase:
    """Knowledge with one base, or none to be reached; satisfies `ports.Knowledge`."""

    def __init__(self) -> None:
        self.down = False

    async def bases(
        self, identity: Identity, base_ids: Sequence[KnowledgeBaseId]
    ) -> Mapping[KnowledgeBaseId, KnowledgeBase]:
        if self.down:
            raise KnowledgeUnavailableError("down")
        return {each: KnowledgeBase(each, "Handbook", "") for each in base_ids if each == SEEN}

    async def search(
        self,
        identity: Identity,
        base_ids: Sequence[KnowledgeBaseId],
        *,
        query: str,
        top_k: int,
        min_score: float | None = None,
    ) -> Sequence[Passage]:
        return []


@pytest.fixture
def knowledge() -> OneBase:
    return OneBase()


@pytest.fixture
def notified() -> LocalHints:
    return LocalHints()


@pytest.fixture
def agents(knowledge: OneBase, notified: LocalHints) -> Agents:
    store = memory_stores().agents
    return Agents(
        store,
        models=Models([OfflineModel(default=True)]),
        tools=Tools([current_time_tool(now)]),
        knowledge=knowledge,
        hooks=Hooks(SHIPPED),
        mcp=McpAccess(Shown(down=frozenset({"notes"})), store),
        notifier=notified,
    )


class TestCreate:
    async def test_what_is_known_is_accepted(self, agents: Agents) -> None:
        settings = AgentSettings(
            "Helper", model="offline", tools=("current_time",), knowledge_base_ids=(SEEN,)
        )

        assert settings == (await agents.create(ALICE, settings)).settings

    @pytest.mark.parametrize("name", ["", "  \n"])
    async def test_a_name_is_required(self, agents: Agents, name: str) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            await agents.create(ALICE, AgentSettings(name))

        assert [each.field for each in refused.value.violations] == ["agent.display_name"]

    async def test_an_unknown_model_is_refused(self, agents: Agents) -> None:
        with pytest.raises(UnknownModelError) as refused:
            await agents.create(ALICE, AgentSettings("Helper", model="huge"))

        assert refused.value.metadata == {"model": "huge", "known": "offline"}
        assert [each.field for each in refused.value.violations] == ["agent.model"]

    async def test_an_unknown_tool_is_refused_by_its_place(self, agents: Agents) -> None:
        with pytest.raises(UnknownToolError) as refused:
            await agents.create(ALICE, AgentSettings("Helper", tools=("current_time", "rm")))

        assert refused.value.metadata == {"tool": "rm", "known": "current_time"}
        assert [each.field for each in refused.value.violations] == ["agent.tools[1]"]

    @pytest.mark.parametrize(
        "tool", ["current_time", "read_more", "ask_librarian", "notes_send", "notes_a-B_1"]
    )
    async def test_an_approval_may_be_about_any_tool_that_there_can_be(
        self, agents: Agents, tool: str
    ) -> None:
        approvals = (ToolApproval(tool, ApprovalMode.ALWAYS),)

        created = await agents.create(ALICE, AgentSettings("Helper", approvals=approvals))

        assert created.settings.approvals == approvals

    @pytest.mark.parametrize(
        "tool", ["rm", "ask", "ask_", "notes", "notes_", "other_send", "ask_a b", "notes_ö", "_"]
    )
    async def test_one_about_a_tool_that_there_cannot_be_is_refused_by_its_place(
        self, agents: Agents, tool: str
    ) -> None:
        approvals = [ToolApproval(each, ApprovalMode.ALWAYS) for each in ("ask_x", tool)]

        with pytest.raises(UnknownToolError) as refused:
            await agents.create(ALICE, AgentSettings("Helper", approvals=tuple(approvals)))

        known = "ask_*, current_time, notes_*, read_more"
        assert refused.value.metadata == {"tool": tool, "known": known}
        assert [each.field for each in refused.value.violations] == ["agent.approvals[1].tool"]

    async def test_an_unknown_hook_is_refused_by_its_place(self, agents: Agents) -> None:
        hooks = (HookSetting("logging"), HookSetting("nothing"))

        with pytest.raises(UnknownHookError) as refused:
            await agents.create(ALICE, AgentSettings("Helper", hooks=hooks))

        assert refused.value.metadata["hook"] == "nothing"
        assert [each.field for each in refused.value.violations] == ["agent.hooks[1].name"]

    async def test_a_base_the_user_does_not_see_is_refused_by_its_place(
        self, agents: Agents
    ) -> None:
        settings = AgentSettings("Helper", knowledge_base_ids=(SEEN, HIDDEN))

        with pytest.raises(UnknownKnowledgeBaseError) as refused:
            await agents.create(ALICE, settings)

        assert refused.value.metadata == {"knowledge_base_id": HIDDEN}
        assert [each.field for each in refused.value.violations] == ["agent.knowledge_base_ids[1]"]

    async def test_bases_that_cannot_be_checked_are_not_taken_on_trust(
        self, agents: Agents, knowledge: OneBase
    ) -> None:
        knowledge.down = True

        with pytest.raises(KnowledgeUnavailableError):
            await agents.create(ALICE, AgentSettings("Helper", knowledge_base_ids=(SEEN,)))
        assert (await agents.create(ALICE, PRIVATE)).settings == PRIVATE

    async def test_a_repeat_gives_the_first_agent_whatever_has_changed(
        self, agents: Agents, knowledge: OneBase
    ) -> None:
        settings = AgentSettings("Helper", knowledge_base_ids=(SEEN,))
        request = RequestKey(new_id(), b"x" * 32)
        first = await agents.create(ALICE, settings, request=request)
        knowledge.down = True

        assert first == await agents.create(ALICE, settings, request=request)


class TestUpdate:
    async def test_only_what_is_named_changes(self, agents: Agents) -> None:
        agent = await agents.create(ALICE, AgentSettings("Helper", system_prompt="Be kind."))
        new = AgentSettings("Other", limits=RunLimits(3, 4, 5, timedelta(seconds=6)))

        changed = await agents.update(ALICE, agent.id, new, ["limits.max_steps", "display_name"])

        assert (
            AgentSettings("Other", system_prompt="Be kind.", limits=RunLimits(max_steps=3))
            == changed.settings
        )

    async def test_only_what_is_named_is_checked(self, agents: Agents, knowledge: OneBase) -> None:
        agent = await agents.create(ALICE, PRIVATE)
        knowledge.down = True
        new = AgentSettings("", model="huge", tools=("rm",), knowledge_base_ids=(HIDDEN,))

        changed = await agents.update(ALICE, agent.id, new, ["description"])

        assert changed.settings == PRIVATE

    async def test_what_is_named_is_checked_as_at_the_creation(self, agents: Agents) -> None:
        agent = await agents.create(ALICE, PRIVATE)
        wrong = {
            "display_name": AgentSettings(""),
            "model": AgentSettings("x", model="huge"),
            "tools": AgentSettings("x", tools=("rm",)),
            "knowledge_base_ids": AgentSettings("x", knowledge_base_ids=(HIDDEN,)),
            "agent_ids": AgentSettings("x", agent_ids=(agent.id,)),
            "hooks": AgentSettings("x", hooks=(HookSetting("nothing"),)),
        }

        for path, new in wrong.items():
            with pytest.raises(InvalidArgumentError):
                await agents.update(ALICE, agent.id, new, [path])
        assert agent == await agents.get(ALICE, agent.id)

    async def test_who_may_not_see_it_learns_nothing_from_the_checks(self, agents: Agents) -> None:
        agent = await agents.create(ALICE, PRIVATE)

        with pytest.raises(NotFoundError):
            await agents.update(BOB, agent.id, AgentSettings(""), paths())

    async def test_who_may_not_change_it_is_told_so(self, agents: Agents) -> None:
        agent = await agents.create(ALICE, SHARED)

        with pytest.raises(PermissionDeniedError):
            await agents.update(BOB, agent.id, AgentSettings("Mine"), ["display_name"])

    async def test_workers_are_told_as_sight_may_be_lost(
        self, agents: Agents, notified: LocalHints
    ) -> None:
        agent = await agents.create(ALICE, SHARED)

        await agents.update(ALICE, agent.id, PRIVATE, ["visibility"])

        assert notified.sent[hints.STOPS] == 1


class TestDelete:
    async def test_workers_are_told(self, agents: Agents, notified: LocalHints) -> None:
        agent = await agents.create(ALICE, PRIVATE)

        await agents.delete(ALICE, agent.id)

        assert notified.sent[hints.STOPS] == 1
        assert (await agents.list(ALICE, Page())).items == []
