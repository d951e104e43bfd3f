"""AgentService over real gRPC and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from chatmind.agent.v1 import (
    agent_pb2,
    hook_pb2,
    mcp_pb2,
    model_pb2,
    run_pb2,
    session_pb2,
    tool_pb2,
)
from chatmind.agent.v1 import agent_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from grpc import StatusCode

from services.agent.clients.mcp import connection as mcp_connection
from services.common.ids import new_id
from tests.agent.fake_mcp import FakeHttp, fake_http
from tests.agent.running import ADMIN, BOB, Caller, RunningAgent, running
from tests.agent.scripted_model import Reply, calls, says

MIB = 1024 * 1024


def agent_of(**fields: Any) -> agent_pb2.Agent:
    return agent_pb2.Agent(**{"display_name": "Helper", **fields})


def update(agent: agent_pb2.Agent, *paths: str) -> pb.UpdateAgentRequest:
    return pb.UpdateAgentRequest(agent=agent, update_mask=FieldMask(paths=paths))


class TestCreateAgent:
    async def test_it_comes_back_as_it_was_asked_for(self, api: RunningAgent) -> None:
        alice = api.alice
        base_id = api.knowledge.add(alice.identity)
        asked = agent_of(
            description="knows",
            system_prompt="Answer.",
            model="scripted",
            options=agent_pb2.ModelOptions(
                temperature=0, top_p=0.5, max_output_tokens=9, stop=["END"], seed=0
            ),
            tools=["current_time"],
            knowledge_base_ids=[base_id],
            retrieval=agent_pb2.Retrieval(mode=agent_pb2.Retrieval.MODE_TOOL, top_k=3, min_score=0),
            limits=agent_pb2.RunLimits(
                max_steps=1, max_tool_calls=2, max_tokens=3, max_duration=Duration(seconds=4)
            ),
            window=agent_pb2.Window(
                max_messages=0,
                max_tokens=5,
                strategy=agent_pb2.Window.STRATEGY_COMPACTION,
                compact_at=0.5,
                keep_messages=0,
                max_summary_tokens=50,
            ),
            visibility=agent_pb2.VISIBILITY_TENANT,
            agent_ids=[(await alice.create_agent()).id],
            time_zone="Asia/Shanghai",
        )

        created = await alice.create_agent(
            **{field.name: value for field, value in asked.ListFields()}
        )

        told = agent_pb2.Agent()
        told.CopyFrom(created)
        for field in ("id", "owner_user_id", "create_time", "update_time"):
            told.ClearField(field)
        assert asked == told
        assert ("alice", created.create_time) == (created.owner_user_id, created.update_time)
        answer = await alice.call("GetAgent", pb.GetAgentRequest(agent_id=created.id))
        assert created == answer.agent

    async def test_what_is_unset_stays_unset(self, api: RunningAgent) -> None:
        created = await api.alice.create_agent()

        assert not created.limits.HasField("max_steps")
        assert not created.options.HasField("temperature")
        assert created.visibility == agent_pb2.VISIBILITY_PRIVATE

    async def test_what_cannot_be_is_named(self, api: RunningAgent) -> None:
        implicit = agent_pb2.Retrieval(mode=agent_pb2.Retrieval.MODE_IMPLICIT)
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"display_name": ""}, "INVALID_FIELD", "agent.display_name"),
            ({"display_name": "x" * 201}, "INVALID_FIELD", "agent.display_name"),
            ({"display_name": "\0" * 200}, "INVALID_FIELD", "agent.display_name"),
            ({"description": "\0" * 4000}, "INVALID_FIELD", "agent.description"),
            ({"system_prompt": "\0" * 65_536}, "INVALID_FIELD", "agent.system_prompt"),
            ({"model": "huge"}, "UNKNOWN_MODEL", "agent.model"),
            ({"tools": ["current_time", "rm"]}, "UNKNOWN_TOOL", "agent.tools[1]"),
            ({"memory_bank_id": new_id()}, "INVALID_FIELD", "agent.memory_bank_id"),
            ({"memory_enabled": True}, "INVALID_FIELD", "agent.memory_enabled"),
            ({"retrieval": implicit}, "INVALID_FIELD", "agent.retrieval.mode"),
            (
                {"knowledge_base_ids": [new_id()]},
                "UNKNOWN_KNOWLEDGE_BASE",
                "agent.knowledge_base_ids[0]",
            ),
            ({"agent_ids": [new_id()]}, "UNKNOWN_AGENT", "agent.agent_ids[0]"),
            ({"mcp_servers": ["nope"]}, "UNKNOWN_MCP_SERVER", "agent.mcp_servers[0]"),
            ({"mcp_servers": ["x" * 33]}, "INVALID_FIELD", "agent.mcp_servers[0]"),
            ({"time_zone": "Mars/Base"}, "INVALID_FIELD", "agent.time_zone"),
            ({"time_zone": "x" * 65}, "INVALID_FIELD", "agent.time_zone"),
            ({"agent_ids": ["x"]}, "INVALID_FIELD", "agent.agent_ids[0]"),
            ({"agent_ids": [new_id() for _ in range(17)]}, "INVALID_FIELD", "agent.agent_ids"),
            (
                {"limits": agent_pb2.RunLimits(max_steps=0)},
                "INVALID_FIELD",
                "agent.limits.max_steps",
            ),
        ]

        for fields, reason, field in wrong:
            request = pb.CreateAgentRequest(agent=agent_of(**fields))
            failure = await api.alice.failure("CreateAgent", request)

            assert (StatusCode.INVALID_ARGUMENT, reason) == (failure.code, failure.reason)
            assert [field] == [each.field for each in failure.violations]
        answer = await api.alice.call("ListAgents", pb.ListAgentsRequest())
        assert list(answer.agents) == []

    async def test_texts_are_kept_up_to_the_last_byte(self, api: RunningAgent) -> None:
        fields = {
            "display_name": "\u5b57" * 66 + "xy",
            "description": "x" * 4000,
            "system_prompt": "x" * 65_536,
        }

        created = await api.alice.create_agent(**fields)

        assert fields == {name: getattr(created, name) for name in fields}

    async def test_what_cannot_be_stored_is_replaced(self, api: RunningAgent) -> None:
        created = await api.alice.create_agent(display_name="a\0b", system_prompt="\0")

        assert (created.display_name, created.system_prompt) == ("a\ufffdb", "\ufffd")

    async def test_a_repeat_gives_the_first_one(self, api: RunningAgent) -> None:
        alice, request_id = api.alice, new_id()
        request = pb.CreateAgentRequest(agent=agent_of(), request_id=request_id)

        answers = await asyncio.gather(*(alice.call("CreateAgent", request) for _ in range(5)))
        other = pb.CreateAgentRequest(agent=agent_of(model="scripted"), request_id=request_id)
        failure = await alice.failure("CreateAgent", other)

        assert len({answer.agent.id for answer in answers}) == 1
        assert (failure.code, failure.reason) == (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")

    async def test_ids_may_be_spelled_in_capitals(self, api: RunningAgent) -> None:
        alice = api.alice
        base_id = api.knowledge.add(alice.identity)

        agent = await alice.create_agent(knowledge_base_ids=[base_id.upper()])
        session = await alice.create_session(agent.id.upper())

        assert [base_id] == agent.knowledge_base_ids
        assert agent.id == session.agent_id


class TestUpdateAgent:
    async def test_only_what_is_named_changes(self, api: RunningAgent) -> None:
        agent = await api.alice.create_agent(
            options=agent_pb2.ModelOptions(temperature=1, seed=7), description="kept"
        )
        new = agent_pb2.Agent(
            id=agent.id,
            display_name="Other",
            options=agent_pb2.ModelOptions(temperature=0.5, seed=8),
        )

        answer = await api.alice.call(
            "UpdateAgent", update(new, "display_name", "options.temperature")
        )

        changed = answer.agent
        assert (changed.display_name, changed.description) == ("Other", "kept")
        assert (changed.options.temperature, changed.options.seed) == (0.5, 7)
        assert changed.create_time == agent.create_time
        assert changed.update_time.ToDatetime() > agent.update_time.ToDatetime()

    async def test_a_named_field_without_a_value_is_cleared(self, api: RunningAgent) -> None:
        agent = await api.alice.create_agent(options=agent_pb2.ModelOptions(seed=7), tools=[])

        request = update(agent_pb2.Agent(id=agent.id), "options.seed", "memory_enabled")
        answer = await api.alice.call("UpdateAgent", request)

        assert not answer.agent.options.HasField("seed")

    async def test_a_path_that_cannot_change_is_refused(self, api: RunningAgent) -> None:
        agent = await api.alice.create_agent()

        for path in ("id", "owner_user_id", "create_time", "nothing", "options.nothing", "*", ""):
            failure = await api.alice.failure("UpdateAgent", update(agent, path))

            assert (failure.code, failure.reason) == (StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
            assert [each.field for each in failure.violations] == ["update_mask"]

    async def test_a_mask_and_an_id_are_required(self, api: RunningAgent) -> None:
        agent = await api.alice.create_agent()
        wrong = {
            "update_mask": [pb.UpdateAgentRequest(agent=agent), update(agent)],
            "agent.id": [update(agent_of(), "display_name")],
        }

        for field, requests in wrong.items():
            for request in requests:
                failure = await api.alice.failure("UpdateAgent", request)
                assert [field] == [each.field for each in failure.violations]

    async def test_what_is_not_offered_is_refused_where_it_is_named(
        self, api: RunningAgent
    ) -> None:
        agent = await api.alice.create_agent()
        new = agent_pb2.Agent(id=agent.id, memory_enabled=True, display_name="Other")

        failure = await api.alice.failure("UpdateAgent", update(new, "memory_enabled"))
        answer = await api.alice.call("UpdateAgent", update(new, "display_name"))

        assert [each.field for each in failure.violations] == ["agent.memory_enabled"]
        assert answer.agent.display_name == "Other"

    async def test_changes_at_the_same_time_do_not_undo_each_other(self, api: RunningAgent) -> None:
        alice = api.alice
        agent = await alice.create_agent()
        new = agent_pb2.Agent(
            id=agent.id,
            display_name="Other",
            description="said",
            options=agent_pb2.ModelOptions(temperature=0.5, seed=3),
        )
        paths = ("display_name", "description", "options.temperature", "options.seed")

        await asyncio.gather(*(alice.call("UpdateAgent", update(new, path)) for path in paths))

        changed = (await alice.call("GetAgent", pb.GetAgentRequest(agent_id=agent.id))).agent
        assert (
            changed.display_name,
            changed.description,
            changed.options.temperature,
            changed.options.seed,
        ) == ("Other", "said", 0.5, 3)

    async def test_a_shared_one_is_changed_by_owner_and_admins_only(
        self, api: RunningAgent
    ) -> None:
        agent = await api.alice.create_agent(visibility=agent_pb2.VISIBILITY_TENANT)
        new = update(agent_of(id=agent.id, display_name="Other"), "display_name")

        failure = await api.caller(BOB).failure("UpdateAgent", new)
        answer = await api.caller(ADMIN).call("UpdateAgent", new)

        assert failure.code == StatusCode.PERMISSION_DENIED
        assert failure.reason == "PERMISSION_DENIED"
        assert answer.agent.display_name == "Other"


class TestListAgents:
    async def test_pages_follow_each_other(self, api: RunningAgent) -> None:
        alice = api.alice
        made = sorted([(await alice.create_agent()).id for _ in range(5)])
        found: list[str] = []
        token = ""
        for _ in range(3):
            answer = await alice.call(
                "ListAgents", pb.ListAgentsRequest(page_size=2, page_token=token)
            )
            found += [agent.id for agent in answer.agents]
            token = answer.next_page_token

        assert (made, "") == (found, token)

    async def test_a_name_narrows_the_list(self, api: RunningAgent) -> None:
        await api.alice.create_agent()
        other = await api.alice.create_agent(display_name="Other")

        answer = await api.alice.call("ListAgents", pb.ListAgentsRequest(display_name="Other"))

        assert [other] == list(answer.agents)

    async def test_a_name_that_cannot_be_stored_finds_what_was_stored_for_it(
        self, api: RunningAgent
    ) -> None:
        created = await api.alice.create_agent(display_name="a\0b")

        answer = await api.alice.call("ListAgents", pb.ListAgentsRequest(display_name="a\0b"))

        assert [created] == list(answer.agents)


class TestDeleteAgent:
    async def test_its_sessions_stay_readable_but_take_no_message(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()

        answer = await alice.call("DeleteAgent", pb.DeleteAgentRequest(agent_id=session.agent_id))
        found = await alice.call("GetSession", pb.GetSessionRequest(session_id=session.id))

        assert answer.delete_time.ToDatetime() > session.create_time.ToDatetime()
        assert session == found.session
        assert await alice.messages(session.id) == []


class TestSessions:
    async def test_an_agent_is_required(self, api: RunningAgent) -> None:
        request = pb.CreateSessionRequest(session=session_pb2.Session(title="x"))

        failure = await api.alice.failure("CreateSession", request)

        assert [each.field for each in failure.violations] == ["session.agent_id"]

    async def test_another_title_is_kept(self, api: RunningAgent) -> None:
        session = await api.alice.create_session(title="First")
        new = session_pb2.Session(id=session.id, title="Second\0")

        answer = await api.alice.call(
            "UpdateSession",
            pb.UpdateSessionRequest(session=new, update_mask=FieldMask(paths=["title"])),
        )

        assert answer.session.title == "Second\ufffd"

    async def test_it_tells_where_its_user_is(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()
        new = session_pb2.Session(id=session.id, title="Other", time_zone="Asia/Tokyo")
        request = pb.UpdateSessionRequest(session=new, update_mask=FieldMask(paths=["time_zone"]))

        answer = await api.alice.call("UpdateSession", request)
        request.session.time_zone = "Mars/Base"
        failure = await api.alice.failure("UpdateSession", request)

        assert (answer.session.time_zone, answer.session.title) == ("Asia/Tokyo", session.title)
        assert [each.field for each in failure.violations] == ["session.time_zone"]

    async def test_nothing_but_title_and_time_zone_changes(self, api: RunningAgent) -> None:
        session = await api.alice.create_session()

        for path in ("agent_id", "last_sequence", "nothing"):
            mask = FieldMask(paths=["title", path])
            request = pb.UpdateSessionRequest(session=session, update_mask=mask)
            failure = await api.alice.failure("UpdateSession", request)

            assert [each.field for each in failure.violations] == ["update_mask"]

    async def test_lists_go_newest_first_and_by_agent(self, api: RunningAgent) -> None:
        alice = api.alice
        agent = await alice.create_agent()
        made = [await alice.create_session(agent.id) for _ in range(3)]
        await alice.create_session()

        request = pb.ListSessionsRequest(agent_id=agent.id, page_size=2)
        first = await alice.call("ListSessions", request)
        request.page_token = first.next_page_token
        second = await alice.call("ListSessions", request)

        newest = sorted((session.id for session in made), reverse=True)
        assert newest == [each.id for each in (*first.sessions, *second.sessions)]
        assert (second.next_page_token, len(first.sessions)) == ("", 2)

    async def test_deleting_tells_what_is_gone(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        for _ in range(3):
            await alice.say(session.id)

        answer = await alice.call("DeleteSession", pb.DeleteSessionRequest(session_id=session.id))
        failure = await alice.failure("GetSession", pb.GetSessionRequest(session_id=session.id))

        assert (answer.messages, answer.runs) == (3, 3)
        assert ("NOT_FOUND", {"resource": "session", "id": session.id}) == (
            failure.reason,
            failure.metadata,
        )


class TestHooks:
    async def test_they_are_kept_as_they_were_said(self, api: RunningAgent) -> None:
        hook = agent_pb2.AgentHook(name="call_limits", priority=0)
        hook.config.update({"model": {"max_calls": 3}, "then": "error"})

        agent = await api.alice.create_agent(hooks=[hook, agent_pb2.AgentHook(name="logging")])

        request = pb.GetAgentRequest(agent_id=agent.id)
        kept = (await api.alice.call("GetAgent", request)).agent
        assert list(kept.hooks) == [hook, agent_pb2.AgentHook(name="logging", config=Struct())]

    @pytest.mark.parametrize(
        ("name", "config", "field"),
        [
            ("nothing", {}, "name"),
            ("logging", {}, "name"),
            ("call_limits", {"model": {"max_calls": -1}}, "config.model.max_calls"),
            ("call_limits", {"tool": {"look": {"max_calls": "x"}}}, "config.tool.look.max_calls"),
            ("call_limits", {}, "config"),
            ("pii_masking", {"kinds": ["email", "shoe_size"]}, "config.kinds[1]"),
            ("pii_masking", {"typo": True}, "config.typo"),
            ("pii_masking", {"text": "x" * 8192}, "config"),
        ],
    )
    async def test_what_cannot_be_is_named(
        self, api: RunningAgent, name: str, config: dict[str, Any], field: str
    ) -> None:
        hook = agent_pb2.AgentHook(name=name)
        hook.config.update(config)
        hooks = [agent_pb2.AgentHook(name="logging"), hook]
        agent = agent_pb2.Agent(display_name="x", hooks=hooks)

        failure = await api.alice.failure("CreateAgent", pb.CreateAgentRequest(agent=agent))

        assert failure.code == StatusCode.INVALID_ARGUMENT
        assert [each.field for each in failure.violations] == [f"agent.hooks[1].{field}"]

    async def test_they_are_changed_alone(self, api: RunningAgent) -> None:
        agent = await api.alice.create_agent(system_prompt="Be kind.")
        new = agent_pb2.Agent(id=agent.id, hooks=[agent_pb2.AgentHook(name="logging")])
        mask = FieldMask(paths=["hooks"])

        request = pb.UpdateAgentRequest(agent=new, update_mask=mask)
        changed = (await api.alice.call("UpdateAgent", request)).agent

        assert [hook.name for hook in changed.hooks] == ["logging"]
        assert changed.system_prompt == "Be kind."


class TestListMessages:
    async def test_a_page_stays_below_three_mebibytes(self, api: RunningAgent) -> None:
        alice = api.alice
        session = await alice.create_session()
        for _ in range(7):
            await alice.say(session.id, "x" * MIB)
        request = pb.ListMessagesRequest(session_id=session.id, page_size=200)
        sequences: list[int] = []
        while True:
            page = await alice.call("ListMessages", request)
            assert page.ByteSize() < 3 * MIB
            sequences += [message.sequence for message in page.messages]
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break

        assert list(range(1, 8)) == sequences

    async def test_a_token_belongs_to_its_list(self, api: RunningAgent) -> None:
        alice = api.alice
        session, other = await alice.create_session(), await alice.create_session()
        for _ in range(2):
            await alice.say(session.id)
        request = pb.ListMessagesRequest(session_id=session.id, page_size=1)
        token = (await alice.call("ListMessages", request)).next_page_token

        for foreign in (
            pb.ListMessagesRequest(session_id=other.id, page_token=token),
            pb.ListMessagesRequest(
                session_id=session.id,
                page_token=token,
                order=pb.ListMessagesRequest.ORDER_NEWEST_FIRST,
            ),
            pb.ListMessagesRequest(session_id=session.id, page_token=token[:-4] + "AAA="),
            pb.ListMessagesRequest(session_id=session.id, page_token="%"),
        ):
            failure = await alice.failure("ListMessages", foreign)
            assert failure.reason == "INVALID_PAGE_TOKEN"


FEW = agent_pb2.Window(strategy=agent_pb2.Window.STRATEGY_COMPACTION, keep_messages=2)


def conversation_of(service: RunningAgent) -> list[str]:
    """What the model was shown last, the instructions aside."""
    messages = service.model.requests[-1].json["messages"]
    return [each["content"] for each in messages if each["role"] != "system"]


class TestChatMemory:
    async def talked(self, service: RunningAgent, window: agent_pb2.Window) -> str:
        """A session of three answered questions."""
        service.model.otherwise = lambda request: says(
            f"To {request.json['messages'][-1]['content']}"
        )
        agent = await service.alice.create_agent(window=window)
        session = await service.alice.create_session(agent.id)
        for number in range(3):
            await service.alice.ended((await service.alice.say(session.id, f"q{number}")).id)
        return session.id

    async def test_a_session_is_summarised_looked_at_and_cleared(
        self, service: RunningAgent
    ) -> None:
        session_id, alice = await self.talked(service, FEW), service.alice
        before = await alice.messages(session_id)
        service.model.script(says("Two questions.", usage=(70, 4)))

        done = await alice.call("CompactSession", pb.CompactSessionRequest(session_id=session_id))
        again = await alice.call("CompactSession", pb.CompactSessionRequest(session_id=session_id))
        memory = (
            await alice.call("GetChatMemory", pb.GetChatMemoryRequest(session_id=session_id))
        ).memory

        assert (done.messages, done.input_tokens, done.output_tokens) == (4, 70, 4)
        assert done.tokens_before > done.tokens_after > 0
        assert (again.messages, again.summary) == (0, done.summary) == (0, memory.summary)
        assert memory.summary.text == "Two questions."
        assert (memory.summary.first_question, memory.summary.through_sequence) == ("q0", 3)
        assert (memory.summary.messages, memory.summary.model) == (4, "scripted")
        assert list(memory.messages) == before[4:]
        assert memory.tokens > 0

        await alice.ended((await alice.say(session_id, "next")).id)
        asked = conversation_of(service)
        assert (asked[0], asked[2:]) == ("q0", ["q2", "To q2", "next"])
        assert "Two questions." in asked[1]

        cleared = await alice.call(
            "ClearChatMemory", pb.ClearChatMemoryRequest(session_id=session_id)
        )
        memory = (
            await alice.call("GetChatMemory", pb.GetChatMemoryRequest(session_id=session_id))
        ).memory
        assert cleared.cleared_through_sequence == memory.cleared_through_sequence == 7
        assert (len(memory.messages), memory.HasField("summary")) == (0, False)
        assert len(await alice.messages(session_id)) == 8
        await alice.ended((await alice.say(session_id, "anew")).id)
        assert conversation_of(service) == ["anew"]

    async def test_why_nothing_is_summarised_is_told(self, service: RunningAgent) -> None:
        plain = await self.talked(service, agent_pb2.Window())
        refused = await self.talked(service, FEW)
        service.model.script(Reply(body=b'{"error": {"message": "No."}}', status=400))

        off = await service.alice.failure(
            "CompactSession", pb.CompactSessionRequest(session_id=plain)
        )
        failed = await service.alice.failure(
            "CompactSession", pb.CompactSessionRequest(session_id=refused)
        )

        assert (off.code, off.reason) == (StatusCode.FAILED_PRECONDITION, "COMPACTION_OFF")
        assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "MODEL_REJECTED")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("strategy", 9),
            ("compact_at", 1.5),
            ("compact_at", 0.0),
            ("keep_messages", -1),
            ("max_summary_tokens", 10),
            ("max_tokens", 0),
        ],
    )
    async def test_a_window_that_cannot_be_is_refused_by_field(
        self, api: RunningAgent, field: str, value: float
    ) -> None:
        agent = agent_pb2.Agent(display_name="x", window=agent_pb2.Window(**{field: value}))  # type: ignore[arg-type]  # a parameter

        failed = await api.alice.failure("CreateAgent", pb.CreateAgentRequest(agent=agent))

        assert (failed.code, failed.reason) == (StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert f"agent.window.{field}" in failed.message


class TestRegistries:
    async def test_tools_are_told_by_name(self, api: RunningAgent) -> None:
        answer = await api.alice.call("ListTools", pb.ListToolsRequest())

        assert [tool.name for tool in answer.tools] == [
            "calculator",
            "current_time",
            "query_knowledge",
        ]
        for tool in answer.tools:
            assert tool.description
            assert tool.idempotent
            assert tool.effect == tool_pb2.Tool.EFFECT_READ_ONLY
            assert tool.trusted == (tool.name != "query_knowledge")
            assert tool.input_schema["type"] == "object"

    async def test_hooks_are_told_by_name(self, api: RunningAgent) -> None:
        answer = await api.alice.call("ListHooks", pb.ListHooksRequest())

        assert [hook.name for hook in answer.hooks] == [
            "call_limits",
            "context_editing",
            "logging",
            "pii_masking",
        ]
        for hook in answer.hooks:
            assert hook.description
            assert hook.positions
            assert hook.config_schema["type"] == "object"
        assert list(answer.hooks[1].positions) == [hook_pb2.Hook.POSITION_BEFORE_MODEL]

    async def test_models_are_told_by_name(self, api: RunningAgent) -> None:
        answer = await api.alice.call("ListModels", pb.ListModelsRequest())

        offline, scripted = answer.models
        assert (
            offline.name,
            offline.provider,
            offline.default,
        ) == ("offline", model_pb2.Model.PROVIDER_OFFLINE, False)
        assert (
            scripted.name,
            scripted.provider,
            scripted.default,
        ) == ("scripted", model_pb2.Model.PROVIDER_OPENAI, True)

    async def test_servers_of_models_are_told_as_they_are_now(self, service: RunningAgent) -> None:
        alice, server, go_on = service.alice, service.model, asyncio.Event()
        server.script(says("Here.").waiting_for(go_on))
        run = await alice.say((await alice.create_session()).id)
        await server.asked(1)

        during = await self.servers(service)
        go_on.set()
        await alice.ended(run.id)
        after = await self.servers(service)

        healthy = model_pb2.Model.Endpoint.STATE_HEALTHY
        assert during == [model_pb2.Model.Endpoint(place=1, weight=1, state=healthy, calls=1)]
        assert after == [model_pb2.Model.Endpoint(place=1, weight=1, state=healthy)]
        assert server.base_url not in str(during)

    async def servers(self, service: RunningAgent) -> list[model_pb2.Model.Endpoint]:
        answer = await service.alice.call("ListModels", pb.ListModelsRequest())
        return list(answer.models[1].endpoints)


CONSENT = mcp_pb2.McpTool


@pytest.fixture
async def served(tmp_path: Path, empty_tables: str) -> AsyncIterator[tuple[RunningAgent, FakeHttp]]:
    """A service with an MCP server over HTTP, of which one tool is declared to be harmless."""
    async with fake_http("2026-07-28") as fake:
        path = tmp_path / "mcp.toml"
        path.write_text(f'[servers.fake]\nurl = "{fake.url}"\nread_only = ["echo"]')
        async with running(tmp_path, empty_tables, CHATMIND_MCP_FILE=path) as service:
            yield service, fake


class TestMcp:
    """Tools of an MCP server, from its declaration to a run."""

    async def test_servers_are_told_with_their_tools(
        self, served: tuple[RunningAgent, FakeHttp]
    ) -> None:
        (server,) = await servers(served[0].alice)

        assert (server.name, server.transport) == ("fake", mcp_pb2.McpServer.TRANSPORT_HTTP)
        assert server.state == mcp_pb2.McpServer.STATE_CONNECTED
        assert server.protocol_version == "2026-07-28"
        tools = {tool.original_name: tool for tool in server.tools}
        assert tools["echo"].name == "fake_echo"
        assert tools["echo"].read_only
        assert not tools["write_note"].read_only
        assert MessageToDict(tools["echo"].input_schema)["required"] == ["text"]
        assert tools["metadata"].consent == CONSENT.CONSENT_REFUSED
        assert "nothing is ever fetched" in tools["metadata"].refusal
        assert {tool.consent for name, tool in tools.items() if name != "metadata"} == {0}

    async def test_a_run_calls_them_and_its_record_says_so(
        self, served: tuple[RunningAgent, FakeHttp]
    ) -> None:
        service, fake = served
        alice = service.alice
        agent = await alice.create_agent(mcp_servers=["fake"])
        service.model.script(calls(("c1", "fake_echo", '{"text": "hi"}')), says("Done."))

        session = await alice.create_session(agent.id)
        run = await alice.ended((await alice.say(session.id)).id)

        assert list(agent.mcp_servers) == ["fake"]
        assert run.state == run_pb2.Run.STATE_FINISHED
        assert "fake_echo" in run.offered.tools
        assert "fake_metadata" not in run.offered.tools
        (told,) = [m for m in await alice.messages(session.id) if m.tool_call_id]
        assert 'echo: {"text": "hi"}' in told.text
        assert fake.fake.calls == ["echo"]

    async def test_arguments_are_checked_before_the_server_hears_of_them(
        self, served: tuple[RunningAgent, FakeHttp]
    ) -> None:
        service, fake = served
        alice = service.alice
        agent = await alice.create_agent(mcp_servers=["fake"])
        service.model.script(calls(("c1", "fake_echo", "{}")), says("Done."))

        session = await alice.create_session(agent.id)
        await alice.ended((await alice.say(session.id)).id)

        (told,) = [m for m in await alice.messages(session.id) if m.tool_call_id]
        assert "'text' is a required property" in told.text
        assert fake.fake.calls == []

    async def test_a_pulled_rug_is_offered_only_after_it_is_approved(
        self, served: tuple[RunningAgent, FakeHttp], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mcp_connection, "FRESH_SECONDS", 0.0)
        service, fake = served
        alice = service.alice
        agent = await alice.create_agent(mcp_servers=["fake"])
        fake.fake.pull()

        (before,) = await servers(alice, agent.id)
        consents = {tool.original_name: tool.consent for tool in before.tools}
        assert before.bound
        assert consents["echo"] == CONSENT.CONSENT_CHANGED
        assert consents["extra"] == CONSENT.CONSENT_NEW
        assert consents["write_note"] == CONSENT.CONSENT_APPROVED
        assert {"fake_echo", "fake_extra"}.isdisjoint(await self.offered(service, agent.id))

        digests = [t.digest for t in before.tools if t.original_name in {"echo", "extra"}]
        approve = pb.ApproveMcpToolsRequest(agent_id=agent.id, server="fake", digests=digests)
        after = (await alice.call("ApproveMcpTools", approve)).mcp_server
        refused = [t.name for t in after.tools if t.consent != CONSENT.CONSENT_APPROVED]
        assert refused == ["fake_metadata"]
        assert {"fake_echo", "fake_extra"} <= await self.offered(service, agent.id)

        fake.fake.tools = [{**fake.fake.tools[0], "description": "Again."}]
        again = await alice.failure("ApproveMcpTools", approve)
        assert (again.code, again.reason) == (StatusCode.FAILED_PRECONDITION, "MCP_TOOL_CHANGED")

    async def offered(self, service: RunningAgent, agent_id: str) -> set[str]:
        service.model.script(says("Hello."))
        session = await service.alice.create_session(agent_id)
        run = await service.alice.ended((await service.alice.say(session.id)).id)
        return {*run.offered.tools}

    async def test_a_server_that_is_down_stops_no_run_but_cannot_be_bound(
        self, tmp_path: Path, empty_tables: str
    ) -> None:
        path = tmp_path / "mcp.toml"
        path.write_text('[servers.dead]\nurl = "http://127.0.0.1:9/mcp"')
        async with running(tmp_path, empty_tables, CHATMIND_MCP_FILE=path) as service:
            (server,) = await servers(service.alice)
            assert server.state == mcp_pb2.McpServer.STATE_UNAVAILABLE
            assert "cannot be reached" in server.error
            create = pb.CreateAgentRequest(agent=agent_of(mcp_servers=["dead"]))
            failure = await service.alice.failure("CreateAgent", create)

        assert (failure.code, failure.reason) == (StatusCode.UNAVAILABLE, "MCP_UNAVAILABLE")

    async def test_a_server_that_dies_costs_a_run_its_tools_and_nothing_else(
        self, served: tuple[RunningAgent, FakeHttp]
    ) -> None:
        service, _ = served
        alice = service.alice
        never = agent_pb2.ToolApproval(tool="fake_die", mode=agent_pb2.ToolApproval.MODE_NEVER)
        agent = await alice.create_agent(mcp_servers=["fake"], approvals=[never])
        service.model.script(calls(("c1", "fake_die", "{}")), says("It broke."))

        session = await alice.create_session(agent.id)
        run = await alice.ended((await alice.say(session.id)).id)

        assert run.state == run_pb2.Run.STATE_FINISHED
        (told,) = [m for m in await alice.messages(session.id) if m.tool_call_id]
        assert "the connection to it broke off" in told.text

    async def test_what_a_server_says_of_its_tools_makes_calls_wait(
        self, served: tuple[RunningAgent, FakeHttp]
    ) -> None:
        service, fake = served
        agent = await service.alice.create_agent(mcp_servers=["fake"])
        service.model.script(calls(("c1", "fake_write_note", '{"text": "hello"}')))

        session = await service.alice.create_session(agent.id)
        run = await service.alice.say(session.id)
        waiting = run_pb2.Run.STATE_AWAITING_APPROVAL
        await service.alice.until(run.id, lambda run: run.state == waiting)

        assert fake.fake.calls == []

    async def test_naming_a_bound_server_again_is_no_new_consent(
        self, served: tuple[RunningAgent, FakeHttp], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mcp_connection, "FRESH_SECONDS", 0.0)
        service, fake = served
        agent = await service.alice.create_agent(mcp_servers=["fake"])
        fake.fake.pull()

        await service.alice.call("UpdateAgent", update(agent, "mcp_servers"))

        (server,) = await servers(service.alice, agent.id)
        consents = {tool.original_name: tool.consent for tool in server.tools}
        assert consents["echo"] == CONSENT.CONSENT_CHANGED


async def servers(caller: Caller, agent_id: str = "") -> list[mcp_pb2.McpServer]:
    answer = await caller.call("ListMcpServers", pb.ListMcpServersRequest(agent_id=agent_id))
    return list(answer.mcp_servers)
