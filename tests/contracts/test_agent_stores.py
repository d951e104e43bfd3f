"""Every implementation of the agent service's stores keeps the same promises."""

from dataclasses import replace
from datetime import timedelta

import pytest

from services.agent.domain.chat import Ending
from services.agent.domain.drafts import wire_size
from services.agent.domain.errors import AgentDeletedError, QueueFullError, RunInProgressError
from services.agent.domain.messages import Role
from services.agent.domain.models import (
    AgentId,
    AgentSettings,
    HookSetting,
    KnowledgeBaseId,
    McpBinding,
    ModelOptions,
    Retrieval,
    RunId,
    RunLimits,
    SessionId,
    Visibility,
    Window,
    WindowStrategy,
)
from services.agent.domain.run_models import RunState, StopReason, WhenBusy
from services.agent.domain.stores import Which
from services.common.errors import NotFoundError, PermissionDeniedError, RequestIdReusedError
from services.common.ids import new_id
from services.common.paging import Page
from tests.contracts.agent_stores import (
    ADMIN,
    ALICE,
    BOB,
    LEASE,
    PRIVATE,
    QUEUE_LIMIT,
    SHARED,
    STRANGER,
    Stores,
    asking,
    call,
    request_key,
    result_of,
)

ENDED = Ending(RunState.FINISHED, StopReason.END_TURN)
FULL = AgentSettings(
    display_name="Überall",
    description="knows",
    system_prompt="Answer.",
    model="large",
    options=ModelOptions(0.5, 0.9, 100, ("END", "STOP"), 7),
    tools=("query_knowledge",),
    knowledge_base_ids=(KnowledgeBaseId(new_id()), KnowledgeBaseId(new_id())),
    retrieval=Retrieval(7, 0.25),
    limits=RunLimits(3, 4, 5000, timedelta(seconds=90.5)),
    window=Window(0, 1234, WindowStrategy.COMPACTION, 0.5, 7, 300),
    visibility=Visibility.TENANT,
    agent_ids=(AgentId(new_id()), AgentId(new_id())),
    time_zone="Asia/Shanghai",
    hooks=(
        HookSetting("logging"),
        HookSetting("mask", -1, {"kinds": ["email"], "deep": {"a": 1.5}}),
    ),
    mcp_servers=(McpBinding("files", {"read file": "0" * 64}), McpBinding("web")),
)


class TestAgents:
    async def test_an_agent_comes_back_as_it_was_created(self, stores: Stores) -> None:
        created = await stores.agents.create(ALICE, FULL)

        assert created.settings == FULL
        assert created == await stores.agents.get(ALICE, created.id)
        assert created.create_time == created.update_time

    async def test_unset_settings_stay_unset(self, stores: Stores) -> None:
        created = await stores.agents.create(ALICE, PRIVATE)

        assert (await stores.agents.get(ALICE, created.id)).settings == PRIVATE

    async def test_a_repeated_request_gives_the_first_agent(self, stores: Stores) -> None:
        key = request_key("x")
        first = await stores.agents.create(ALICE, PRIVATE, request=key)

        assert first == await stores.agents.create(ALICE, PRIVATE, request=key)
        assert first == await stores.agents.created(ALICE, key)
        assert [first] == await stores.agents.list(ALICE, Page())

    async def test_a_request_id_is_one_users_own(self, stores: Stores) -> None:
        key = request_key("x")
        first = await stores.agents.create(ALICE, PRIVATE, request=key)

        assert await stores.agents.created(BOB, key) is None
        assert first.id != (await stores.agents.create(BOB, PRIVATE, request=key)).id

    async def test_a_request_id_takes_no_other_content(self, stores: Stores) -> None:
        key = request_key("x")
        await stores.agents.create(ALICE, PRIVATE, request=key)

        with pytest.raises(RequestIdReusedError):
            await stores.agents.create(ALICE, SHARED, request=request_key("y", key.id))
        with pytest.raises(RequestIdReusedError):
            await stores.agents.created(ALICE, request_key("y", key.id))

    async def test_a_private_agent_is_its_owners(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, PRIVATE)

        for identity in (BOB, ADMIN, STRANGER):
            with pytest.raises(NotFoundError):
                await stores.agents.get(identity, agent.id)
            with pytest.raises(NotFoundError):
                await stores.agents.update(identity, agent.id, lambda settings: settings)
            with pytest.raises(NotFoundError):
                await stores.agents.delete(identity, agent.id)
            assert await stores.agents.list(identity, Page()) == []

    async def test_a_shared_agent_is_seen_by_the_tenant(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, SHARED)

        assert agent == await stores.agents.get(BOB, agent.id)
        assert [agent] == await stores.agents.list(BOB, Page())
        with pytest.raises(NotFoundError):
            await stores.agents.get(STRANGER, agent.id)
        assert await stores.agents.list(STRANGER, Page()) == []

    async def test_a_shared_agent_is_changed_by_owner_and_admins_only(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, SHARED)

        with pytest.raises(PermissionDeniedError):
            await stores.agents.update(BOB, agent.id, lambda _: FULL)
        with pytest.raises(PermissionDeniedError):
            await stores.agents.delete(BOB, agent.id)
        changed = await stores.agents.update(ADMIN, agent.id, lambda _: FULL)

        assert changed.settings == FULL
        assert changed == await stores.agents.get(ALICE, agent.id)
        assert agent.create_time == changed.create_time
        assert agent.update_time < changed.update_time

    async def test_of_named_agents_those_that_are_seen_are_given(self, stores: Stores) -> None:
        private = await stores.agents.create(ALICE, PRIVATE)
        shared = await stores.agents.create(ALICE, SHARED)
        named = [shared.id, private.id, AgentId(new_id())]

        assert {private.id: private, shared.id: shared} == await stores.agents.named(ALICE, named)
        assert {shared.id: shared} == await stores.agents.named(BOB, named)
        assert await stores.agents.named(STRANGER, named) == {}

    async def test_whom_agents_call_is_told_within_the_tenant(self, stores: Stores) -> None:
        callee = await stores.agents.create(ALICE, PRIVATE)
        caller = await stores.agents.create(ALICE, replace(PRIVATE, agent_ids=(callee.id,)))
        both = [callee.id, caller.id]

        told = await stores.agents.callees(BOB, both)

        assert {callee.id: (), caller.id: (callee.id,)} == told
        assert await stores.agents.callees(STRANGER, both) == {}

    async def test_a_deleted_agent_is_gone(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, PRIVATE)

        assert agent.create_time <= await stores.agents.delete(ALICE, agent.id)
        with pytest.raises(NotFoundError):
            await stores.agents.get(ALICE, agent.id)

    async def test_pages_go_through_own_and_shared_agents_oldest_first(
        self, stores: Stores
    ) -> None:
        owners = [(ALICE, PRIVATE), (BOB, SHARED), (ALICE, SHARED), (BOB, PRIVATE), (BOB, SHARED)]
        made = [await stores.agents.create(*each) for each in owners]
        seen = sorted(agent.id for agent in made[:3] + made[4:])

        first = await stores.agents.list(ALICE, Page(size=2))
        rest = await stores.agents.list(ALICE, Page(size=2, after=(first[1].id,)))

        assert seen[:2] == [agent.id for agent in first]
        assert seen[2:] == [agent.id for agent in rest]

    async def test_a_name_narrows_the_list(self, stores: Stores) -> None:
        await stores.agents.create(ALICE, PRIVATE)
        shared = await stores.agents.create(BOB, SHARED)

        assert [shared] == await stores.agents.list(ALICE, Page(), display_name="Shared")
        assert await stores.agents.list(ALICE, Page(), display_name="shared") == []


class TestSessions:
    async def test_a_session_is_opened_with_an_agent_one_sees(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, SHARED)

        session = await stores.sessions.create(BOB, agent.id, title="Talk")

        assert session == await stores.sessions.get(BOB, session.id)
        assert (agent.id, "Talk", 0, None) == (
            session.agent_id,
            session.title,
            session.last_sequence,
            session.active_run_id,
        )

    async def test_no_session_is_opened_with_an_agent_one_does_not_see(
        self, stores: Stores
    ) -> None:
        agent = await stores.agents.create(ALICE, PRIVATE)

        for agent_id in (agent.id, AgentId(new_id())):
            with pytest.raises(NotFoundError):
                await stores.sessions.create(BOB, agent_id)

    async def test_a_repeated_request_gives_the_first_session(self, stores: Stores) -> None:
        agent = await stores.agents.create(ALICE, PRIVATE)
        key = request_key("x")
        first = await stores.sessions.create(ALICE, agent.id, request=key)

        assert first == await stores.sessions.create(ALICE, agent.id, request=key)
        with pytest.raises(RequestIdReusedError):
            await stores.sessions.create(ALICE, agent.id, request=request_key("y", key.id))
        assert [first] == await stores.sessions.list(ALICE, Page())

    async def test_a_session_is_its_users_alone(self, stores: Stores) -> None:
        session = await stores.session(ALICE, SHARED)

        for identity in (BOB, ADMIN, STRANGER):
            with pytest.raises(NotFoundError):
                await stores.sessions.get(identity, session.id)
            with pytest.raises(NotFoundError):
                await stores.sessions.update(identity, session.id, title="mine")
            with pytest.raises(NotFoundError):
                await stores.sessions.delete(identity, session.id)
            assert await stores.sessions.list(identity, Page()) == []
        assert session == await stores.sessions.get(ALICE, session.id)

    async def test_pages_go_newest_first_and_by_agent(self, stores: Stores) -> None:
        made = [await stores.session() for _ in range(4)]
        newest = sorted((session.id for session in made), reverse=True)

        first = await stores.sessions.list(ALICE, Page(size=2))
        rest = await stores.sessions.list(ALICE, Page(size=2, after=(first[1].id,)))

        assert newest[:2] == [session.id for session in first]
        assert newest[2:] == [session.id for session in rest]
        which = Which(agent_id=made[1].agent_id)
        assert [made[1]] == await stores.sessions.list(ALICE, Page(), which)

    async def test_another_title_is_kept(self, stores: Stores) -> None:
        session = await stores.session()

        renamed = await stores.sessions.update(ALICE, session.id, title="Other")

        assert renamed == await stores.sessions.get(ALICE, session.id)
        assert renamed.title == "Other"
        assert session.update_time < renamed.update_time

    async def test_its_runs_are_told_where_the_user_is(self, stores: Stores) -> None:
        """What the session says counts before what the agent says; neither needs to."""
        settings = replace(PRIVATE, time_zone="Europe/Paris")
        agent = await stores.agents.create(ALICE, settings)
        opened = await stores.sessions.create(ALICE, agent.id, time_zone="Asia/Tokyo")
        told = list[str]()
        for zone in (None, "America/New_York", ""):
            changed = await stores.sessions.update(ALICE, opened.id, time_zone=zone)
            assert changed == await stores.sessions.get(ALICE, opened.id)
            assert changed.title == ("Hello" if told else "")
            await stores.runs.start(ALICE, opened.id, "Hello")
            claim = await stores.claimed()
            told.append((await stores.queue.context(claim)).time_zone)
            await stores.queue.journal(claim).finish(ENDED)

        assert (opened.time_zone, changed.time_zone) == ("Asia/Tokyo", "")
        assert told == ["Asia/Tokyo", "America/New_York", "Europe/Paris"]
        await stores.started()
        assert (await stores.queue.context(await stores.claimed())).time_zone == "UTC"

    async def test_a_deleted_session_takes_messages_and_runs_along(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.runs.start(ALICE, run.session_id, "Again")
        other = await stores.started()

        deleted = await stores.sessions.delete(ALICE, run.session_id)

        assert (deleted.messages, deleted.runs) == (2, 2)
        assert await stores.said(run) == []
        with pytest.raises(NotFoundError):
            await stores.sessions.get(ALICE, run.session_id)
        with pytest.raises(NotFoundError):
            await stores.runs.get(ALICE, run.id)
        assert other == await stores.runs.get(ALICE, other.id)


class TestMessages:
    async def test_pages_go_both_ways(self, stores: Stores) -> None:
        session = await stores.session()
        for text in "abcde":
            await stores.runs.start(ALICE, session.id, text)

        first = await stores.messages.after(ALICE, session.id, 0, most=2, max_bytes=10**6)
        last = await stores.messages.after(ALICE, session.id, 3, most=2, max_bytes=10**6)
        newest = await stores.messages.before(ALICE, session.id, None, most=2, max_bytes=10**6)
        oldest = await stores.messages.before(ALICE, session.id, 3, most=2, max_bytes=10**6)

        assert ([each.text for each in first.items], first.more) == (["a", "b"], True)
        assert ([each.text for each in last.items], last.more) == (["d", "e"], False)
        assert ([each.text for each in newest.items], newest.more) == (["e", "d"], True)
        assert ([each.text for each in oldest.items], oldest.more) == (["b", "a"], False)

    async def test_a_page_is_bounded_in_bytes_but_never_empty(self, stores: Stores) -> None:
        session = await stores.session()
        for _ in range(3):
            await stores.runs.start(ALICE, session.id, "x" * 1000)
        size = wire_size((await stores.said(session))[0])

        for most_bytes, expected in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
            page = await stores.messages.after(ALICE, session.id, 0, most=10, max_bytes=most_bytes)

            assert (expected, expected < 3) == (len(page.items), page.more)

    async def test_others_read_nothing(self, stores: Stores) -> None:
        run = await stores.started()

        for identity in (BOB, ADMIN, STRANGER):
            assert await stores.said(run, identity) == []
            page = await stores.messages.before(
                identity, run.session_id, None, most=10, max_bytes=10**6
            )
            assert (list(page.items), page.more) == ([], False)


class TestRuns:
    async def test_message_and_run_are_accepted_together(self, stores: Stores) -> None:
        session = await stores.session()

        run, message = await stores.runs.start(ALICE, session.id, "Hello")

        assert run == await stores.runs.get(ALICE, run.id)
        assert [message] == await stores.said(session)
        assert (RunState.IDLE, message.id, 1) == (run.state, run.message_id, run.turn)
        assert (run.id, 1, Role.USER, "Hello") == (
            message.run_id,
            message.sequence,
            message.role,
            message.text,
        )
        after = await stores.sessions.get(ALICE, session.id)
        assert (1, run.id) == (after.last_sequence, after.active_run_id)

    async def test_the_first_message_gives_the_title_if_there_is_none(self, stores: Stores) -> None:
        untitled = await stores.session()
        titled = await stores.sessions.create(ALICE, untitled.agent_id, title="Given")
        for session in (untitled, titled):
            await stores.runs.start(ALICE, session.id, "What is\tit?\nPlease")
            await stores.runs.start(ALICE, session.id, "Another")

        assert (await stores.sessions.get(ALICE, untitled.id)).title == "What is it?"
        assert (await stores.sessions.get(ALICE, titled.id)).title == "Given"

    async def test_an_agent_that_masks_gives_a_title_without_personal_data(
        self, stores: Stores
    ) -> None:
        masking = replace(PRIVATE, hooks=(HookSetting("logging"), HookSetting("pii_masking")))
        other = replace(PRIVATE, hooks=(HookSetting("logging"),))
        for settings, title in ((masking, "Write to [email]"), (other, "Write to a@example.com")):
            session = await stores.session(settings=settings)
            await stores.runs.start(ALICE, session.id, "Write to a@example.com")

            assert (await stores.sessions.get(ALICE, session.id)).title == title

    async def test_a_repeated_request_gives_the_first_run(self, stores: Stores) -> None:
        session = await stores.session()
        key = request_key("x")
        first = await stores.runs.start(ALICE, session.id, "Hello", request=key)

        assert first == await stores.runs.start(ALICE, session.id, "Hello", request=key)
        with pytest.raises(RequestIdReusedError):
            await stores.runs.start(ALICE, session.id, "No", request=request_key("y", key.id))
        assert len(await stores.said(session)) == 1

    async def test_a_refused_request_may_come_again(self, stores: Stores) -> None:
        session = await stores.session()
        first, _ = await stores.runs.start(ALICE, session.id, "Hello")
        key = request_key("x")
        with pytest.raises(RunInProgressError):
            await stores.runs.start(
                ALICE, session.id, "More", when_busy=WhenBusy.REJECT, request=key
            )
        await stores.runs.cancel(ALICE, first.id)

        _, message = await stores.runs.start(
            ALICE, session.id, "More", when_busy=WhenBusy.REJECT, request=key
        )

        assert message.text == "More"

    async def test_a_busy_session_refuses_where_asked_to(self, stores: Stores) -> None:
        first = await stores.started()

        with pytest.raises(RunInProgressError) as refused:
            await stores.runs.start(ALICE, first.session_id, "No", when_busy=WhenBusy.REJECT)

        assert {"run_id": first.id} == refused.value.metadata
        assert len(await stores.said(first)) == 1

    async def test_a_session_takes_only_so_many(self, stores: Stores) -> None:
        session = await stores.session()
        for _ in range(QUEUE_LIMIT):
            await stores.runs.start(ALICE, session.id, "Hello")

        with pytest.raises(QueueFullError) as full:
            await stores.runs.start(ALICE, session.id, "No")

        assert {"limit": str(QUEUE_LIMIT), "scope": "session"} == full.value.metadata
        assert len(await stores.said(session)) == QUEUE_LIMIT

    async def test_without_an_agent_that_one_sees_nothing_is_accepted(self, stores: Stores) -> None:
        hidden, deleted = await stores.session(BOB, SHARED), await stores.session(BOB, SHARED)
        sessions = [
            await stores.sessions.create(ALICE, each.agent_id) for each in (hidden, deleted)
        ]
        await stores.agents.update(BOB, hidden.agent_id, lambda _: PRIVATE)
        await stores.agents.delete(BOB, deleted.agent_id)

        for session in sessions:
            with pytest.raises(AgentDeletedError) as gone:
                await stores.runs.start(ALICE, session.id, "Hello")
            assert {"agent_id": session.agent_id} == gone.value.metadata
            assert session == await stores.sessions.get(ALICE, session.id)

    async def test_a_run_is_its_users_alone(self, stores: Stores) -> None:
        run = await stores.started()

        for identity in (BOB, ADMIN, STRANGER):
            with pytest.raises(NotFoundError):
                await stores.runs.get(identity, run.id)
            with pytest.raises(NotFoundError):
                await stores.runs.cancel(identity, run.id)
            with pytest.raises(NotFoundError):
                await stores.runs.start(identity, run.session_id, "Mine")
            assert await stores.runs.list(identity, run.session_id, Page()) == []
        assert run == await stores.runs.get(ALICE, run.id)

    async def test_an_unknown_id_is_not_found(self, stores: Stores) -> None:
        with pytest.raises(NotFoundError):
            await stores.runs.start(ALICE, SessionId(new_id()), "Hello")
        with pytest.raises(NotFoundError):
            await stores.runs.get(ALICE, RunId(new_id()))

    async def test_pages_go_newest_first(self, stores: Stores) -> None:
        session = await stores.session()
        runs = [(await stores.runs.start(ALICE, session.id, "Hello"))[0] for _ in range(4)]

        first = await stores.runs.list(ALICE, session.id, Page(size=2))
        rest = await stores.runs.list(ALICE, session.id, Page(size=2, after=(str(first[1].turn),)))

        assert runs[:1:-1] == first
        assert runs[1::-1] == rest

    async def test_a_waiting_run_is_cancelled_at_once(self, stores: Stores) -> None:
        run = await stores.started()

        cancelled = await stores.runs.cancel(ALICE, run.id)

        assert cancelled == await stores.runs.get(ALICE, run.id)
        assert cancelled == await stores.runs.cancel(ALICE, run.id)
        assert (
            cancelled.state,
            cancelled.stop_reason,
            cancelled.cancel_requested,
        ) == (RunState.CANCELLED, StopReason.CANCELLED, False)
        assert cancelled.end_time is not None
        _, notice = await stores.said(run)
        assert (Role.SYSTEM, run.id) == (notice.role, notice.run_id)
        assert notice.text
        assert await stores.queue.claim(lease=LEASE, most=1) == []

    async def test_a_held_run_is_asked_to_stop(self, stores: Stores) -> None:
        run = await stores.started()
        await stores.claimed()

        asked = await stores.runs.cancel(ALICE, run.id)

        assert asked == await stores.runs.cancel(ALICE, run.id)
        assert (asked.state, asked.cancel_requested) == (RunState.PLANNING, True)
        assert len(await stores.said(run)) == 1

    async def test_a_run_handed_back_amid_its_calls_answers_them_when_cancelled(
        self, stores: Stores
    ) -> None:
        run = await stores.started()
        claim = await stores.claimed()
        journal = stores.queue.journal(claim)
        asked = [call("a"), call("b")]
        await journal.append_assistant(asking(*asked), usage=run.usage)
        await journal.append_tool_results([result_of(asked[0])])
        await stores.queue.hand_back(claim)

        await stores.runs.cancel(ALICE, run.id)

        _, _, done, open_, notice = await stores.said(run)
        assert (done.tool_call_id, done.text) == ("a", "seen")
        assert (open_.tool_call_id, open_.text) == ("b", "cancelled by the user")
        assert notice.role is Role.SYSTEM
