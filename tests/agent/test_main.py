"""The whole service, as one process has it."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from chatmind.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    run_pb2,
    run_service_pb2,
    session_pb2,
)
from google.protobuf.field_mask_pb2 import FieldMask
from grpc import StatusCode, aio

from services.common.channel import OutgoingCalls
from services.common.clock import now
from services.common.identity import IdentitySigner
from services.common.ids import new_id
from services.common.status import RpcFailure, failure_of
from tests.agent.running import (
    ADMIN,
    ALICE,
    BOB,
    ROOT,
    STRANGER,
    Caller,
    FakeKnowledge,
    Keys,
    Process,
    RunningAgent,
    fake_knowledge,
)
from tests.agent.scripted_model import ScriptedModel, calls, says, scripted_model

CASE_42 = Path(__file__).parents[1] / "cases/42-other-users-session"

USER, ASSISTANT, TOOL, SYSTEM = (
    session_pb2.Message.ROLE_USER,
    session_pb2.Message.ROLE_ASSISTANT,
    session_pb2.Message.ROLE_TOOL,
    session_pb2.Message.ROLE_SYSTEM,
)


OUR_OWN = """
from dataclasses import replace

from services.agent.domain.hooks.hook import Hook, HookConfig
from services.agent.domain.tools.function import function_tool


async def shout(text: str) -> str:
    'Says it loudly.'
    return text.upper()


class Stamp(Hook[HookConfig]):
    'Marks results.'
    name = "stamp"

    async def after_tool(self, call, result, run):
        return replace(result, text=f"<{result.text}>")


HOOKS = [Stamp]
TOOLS = [function_tool(shout, idempotent=True)]
"""


async def last_of(watch: Any) -> Any:
    """The last event of a watch that ends well."""
    last = None
    while (event := await watch.read()) is not aio.EOF:
        last = event
    return last


class TestAnswers:
    async def test_a_message_is_answered_with_what_a_tool_found(
        self, service: RunningAgent
    ) -> None:
        alice = service.alice
        base_id = service.knowledge.add(alice.identity)
        agent = await alice.create_agent(knowledge_base_ids=[base_id])
        session = await alice.create_session(agent.id)
        service.model.script(
            calls(("c1", "query_knowledge", '{"query": "backups"}')), says("35 days [1].")
        )

        started = await alice.say(session.id, "How long are backups kept?")
        run = await alice.ended(started.id)

        question, asked, found, answer = await alice.messages(session.id)
        assert [each.role for each in (question, asked, found, answer)] == [
            USER,
            ASSISTANT,
            TOOL,
            ASSISTANT,
        ]
        assert answer.text == "35 days [1]."
        assert [base_id] == [each.knowledge_base_id for each in answer.citations]
        assert (
            run.state,
            run.stop_reason,
        ) == (run_pb2.Run.STATE_FINISHED, run_pb2.Run.STOP_REASON_END_TURN)
        assert (2, ["query_knowledge"], [base_id], "scripted") == (
            run.step_count,
            list(run.offered.tools),
            list(run.offered.knowledge_base_ids),
            run.offered.model,
        )

    async def test_the_offline_model_quotes_the_documents(self, service: RunningAgent) -> None:
        alice = service.alice
        base_id = service.knowledge.add(alice.identity)
        agent = await alice.create_agent(knowledge_base_ids=[base_id], model="offline")
        session = await alice.create_session(agent.id)

        run = await alice.ended((await alice.say(session.id, "How long are backups kept?")).id)

        *_, answer = await alice.messages(session.id)
        assert "Backups are kept for 35 days." in answer.text
        assert run.stop_reason == run_pb2.Run.STOP_REASON_END_TURN
        assert service.model.requests == []


class TestProcess:
    """Real processes, which end in every way."""

    @pytest.fixture
    async def knowledge(self, tmp_path: Path) -> AsyncIterator[FakeKnowledge]:
        async with fake_knowledge(Keys(tmp_path / "identity")) as knowledge:
            yield knowledge

    @pytest.fixture
    async def model(self) -> AsyncIterator[ScriptedModel]:
        async with scripted_model() as model:
            yield model

    @pytest.fixture
    def process(
        self, empty_tables: str, knowledge: FakeKnowledge, model: ScriptedModel
    ) -> Callable[..., Process]:
        """Makes processes that know one another's database, models and knowledge."""

        def make(**variables: str) -> Process:
            told = {
                "CHATMIND_AGENT_KNOWLEDGE_ADDRESS": f"127.0.0.1:{knowledge.port}",
                "CHATMIND_AGENT_LEASE_SECONDS": "1",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_MODEL": "scripted",
            }
            return Process(empty_tables, knowledge.keys, **{**told, **variables})

        return make

    async def test_a_killed_workers_run_goes_on_without_repeating_a_call(
        self, process: Callable[..., Process], model: ScriptedModel, knowledge: FakeKnowledge
    ) -> None:
        model.script(
            calls(("c", "query_knowledge", '{"query": "backups"}')),
            says("never").waiting_for(asyncio.Event()),
            says("35 days."),
        )
        api, worker = process(CHATMIND_AGENT_ROLE="api"), process(CHATMIND_AGENT_ROLE="worker")
        async with api.started() as channel, AsyncExitStack() as workers:
            alice = knowledge.keys.caller(channel, ALICE)
            agent = await alice.create_agent(knowledge_base_ids=[knowledge.add(ALICE)])
            session = await alice.create_session(agent.id)
            await workers.enter_async_context(worker.started())
            run = await alice.say(session.id, "How long are backups kept?")
            await model.asked(2)

            await worker.end(signal.SIGKILL)
            await workers.enter_async_context(process(CHATMIND_AGENT_ROLE="worker").started())
            ended = await alice.ended(run.id)

            said = await alice.messages(session.id)
        assert [each.role for each in said] == [USER, ASSISTANT, TOOL, ASSISTANT]
        assert (said[-1].text, ended.step_count) == ("35 days.", 2)
        assert len(knowledge.searches) == 1
        assert ended.stop_reason == run_pb2.Run.STOP_REASON_END_TURN

    async def test_hooks_and_tools_of_an_operators_hold_also_after_a_kill(
        self,
        process: Callable[..., Process],
        model: ScriptedModel,
        knowledge: FakeKnowledge,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "our_own.py").write_text(OUR_OWN)
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen"), str(tmp_path)]),
            "CHATMIND_AGENT_HOOKS": "our_own",
            "CHATMIND_AGENT_TOOLS": "our_own",
        }
        model.script(
            calls(("c", "shout", '{"text": "ann@example.com"}')),
            says("never").waiting_for(asyncio.Event()),
            says("I told bob@example.com."),
        )
        api = process(CHATMIND_AGENT_ROLE="api", **ours)
        worker = process(CHATMIND_AGENT_ROLE="worker", **ours)
        async with api.started() as channel, AsyncExitStack() as workers:
            alice = knowledge.keys.caller(channel, ALICE)
            hooks = [agent_pb2.AgentHook(name="stamp"), agent_pb2.AgentHook(name="pii_masking")]
            agent = await alice.create_agent(tools=["shout"], hooks=hooks)
            session = await alice.create_session(agent.id)
            await workers.enter_async_context(worker.started())
            run = await alice.say(session.id, "Tell ann@example.com.")
            await model.asked(2)

            await worker.end(signal.SIGKILL)
            another = process(CHATMIND_AGENT_ROLE="worker", **ours)
            await workers.enter_async_context(another.started())
            ended = await alice.ended(run.id)
            said = await alice.messages(session.id)

        assert [each.text for each in said] == [
            "Tell ann@example.com.",
            "",
            "<[EMAIL]>",
            "I told [email].",
        ]
        assert list(ended.offered.hooks) == ["pii_masking", "stamp"]
        assert "ann@" not in repr([request.json for request in model.requests])

    @pytest.mark.parametrize("setting", ["CHATMIND_AGENT_HOOKS", "CHATMIND_AGENT_TOOLS"])
    async def test_a_module_that_cannot_be_had_is_told_in_a_line(
        self, process: Callable[..., Process], setting: str
    ) -> None:
        code, told = await process(**{setting: "nothing_like_it"}).failed()

        why = "ModuleNotFoundError: No module named 'nothing_like_it'"
        assert code == 1
        assert f"agent: the module 'nothing_like_it' cannot be imported: {why}\n" == told

    async def test_a_process_that_is_asked_to_stop_hands_its_runs_on(
        self, process: Callable[..., Process], model: ScriptedModel, knowledge: FakeKnowledge
    ) -> None:
        """Long before their leases lapse."""
        model.script(says("never").waiting_for(asyncio.Event()), says("Hello."))
        leaving, staying = (process(CHATMIND_AGENT_LEASE_SECONDS="60") for _ in range(2))
        async with leaving.started() as first:
            alice = knowledge.keys.caller(first, ALICE)
            session = await alice.create_session()
            watch = alice.watch(session.id, 0)
            run = await alice.say(session.id)
            await model.asked(1)
            async with staying.started() as second:
                code, logged = await leaving.end(signal.SIGTERM)
                ended = await knowledge.keys.caller(second, ALICE).ended(run.id, within=2)

            last = await last_of(watch)
        assert (code, ended.state) == (0, run_pb2.Run.STATE_FINISHED)
        assert last.WhichOneof("event") == "go_away"
        assert "Traceback" not in logged

    async def test_what_is_wrong_with_the_models_is_told_in_a_line(
        self, process: Callable[..., Process], tmp_path: Path
    ) -> None:
        models = tmp_path / "models.toml"
        models.write_text("[models.a]\nbase_url = 'ftp://x'\n")

        code, told = await process(CHATMIND_MODELS_FILE=str(models)).failed()

        assert code == 1
        assert len(told.splitlines()) == 1
        assert "models.a" in told

    async def test_chatminds_own_database_is_none_for_models(
        self, process: Callable[..., Process], tmp_path: Path, empty_tables: str
    ) -> None:
        sql = tmp_path / "sql.toml"
        sql.write_text('[databases.own]\nurl_env = "OWN_URL"\n')
        wrong = tmp_path / "wrong.toml"
        wrong.write_text('[databases.own]\nurl_env = "NO_URL"\n')

        own = await process(CHATMIND_SQL_FILE=str(sql), OWN_URL=empty_tables).failed()
        unset = await process(CHATMIND_SQL_FILE=str(wrong)).failed()

        assert own[0] == unset[0] == 1
        last = own[1].splitlines()[-1]
        assert last == "agent: databases.own: this is ChatMind's own database, or a copy of it"
        assert "the variable NO_URL, named by url_env, is not set" in unset[1].splitlines()[-1]

    async def test_hosts_that_make_no_sense_are_told_in_a_line(
        self, process: Callable[..., Process]
    ) -> None:
        code, told = await process(CHATMIND_AGENT_FETCH_HOSTS="docs.python.org,*").failed()

        assert code == 2
        assert told.startswith("CHATMIND_AGENT_FETCH_HOSTS: '*' must be a host such as")


class Ids:
    """The ids of one user's agent, session and run; or random ones."""

    def __init__(self, agent_id: str = "", session_id: str = "", run_id: str = "") -> None:
        self.agent_id = agent_id or new_id()
        self.session_id = session_id or new_id()
        self.run_id = run_id or new_id()


def _update_agent(ids: Ids) -> agent_service_pb2.UpdateAgentRequest:
    agent = agent_pb2.Agent(id=ids.agent_id, display_name="Mine")
    return agent_service_pb2.UpdateAgentRequest(
        agent=agent, update_mask=FieldMask(paths=["display_name"])
    )


def _create_session(ids: Ids) -> agent_service_pb2.CreateSessionRequest:
    session = session_pb2.Session(agent_id=ids.agent_id)
    return agent_service_pb2.CreateSessionRequest(session=session)


def _update_session(ids: Ids) -> agent_service_pb2.UpdateSessionRequest:
    session = session_pb2.Session(id=ids.session_id, title="Mine")
    return agent_service_pb2.UpdateSessionRequest(
        session=session, update_mask=FieldMask(paths=["title"])
    )


BY_ID: dict[str, Callable[[Ids], Any]] = {
    "GetAgent": lambda ids: agent_service_pb2.GetAgentRequest(agent_id=ids.agent_id),
    "UpdateAgent": _update_agent,
    "DeleteAgent": lambda ids: agent_service_pb2.DeleteAgentRequest(agent_id=ids.agent_id),
    "CreateSession": _create_session,
    "GetSession": lambda ids: agent_service_pb2.GetSessionRequest(session_id=ids.session_id),
    "UpdateSession": _update_session,
    "DeleteSession": lambda ids: agent_service_pb2.DeleteSessionRequest(session_id=ids.session_id),
    "ListMessages": lambda ids: agent_service_pb2.ListMessagesRequest(session_id=ids.session_id),
    "GetChatMemory": lambda ids: agent_service_pb2.GetChatMemoryRequest(session_id=ids.session_id),
    "ClearChatMemory": lambda ids: agent_service_pb2.ClearChatMemoryRequest(
        session_id=ids.session_id
    ),
    "CompactSession": lambda ids: agent_service_pb2.CompactSessionRequest(
        session_id=ids.session_id
    ),
    "StartRun": lambda ids: run_service_pb2.StartRunRequest(session_id=ids.session_id, text="x"),
    "GetRun": lambda ids: run_service_pb2.GetRunRequest(run_id=ids.run_id),
    "ListRuns": lambda ids: run_service_pb2.ListRunsRequest(session_id=ids.session_id),
    "CancelRun": lambda ids: run_service_pb2.CancelRunRequest(run_id=ids.run_id),
    "RetryRun": lambda ids: run_service_pb2.RetryRunRequest(run_id=ids.run_id),
    "ReplayRun": lambda ids: run_service_pb2.ReplayRunRequest(run_id=ids.run_id),
    "ApproveMcpTools": lambda ids: agent_service_pb2.ApproveMcpToolsRequest(
        agent_id=ids.agent_id, server="files", digests=["0" * 64]
    ),
    "ListApprovals": lambda ids: run_service_pb2.ListApprovalsRequest(run_id=ids.run_id),
    "ResolveApproval": lambda ids: run_service_pb2.ResolveApprovalRequest(
        # Of a run that waits: tests/agent/api/test_run_servicer.py.
        approval_id=ids.run_id,
        decision=run_service_pb2.ResolveApprovalRequest.DECISION_DENY,
    ),
    "ListToolCalls": lambda ids: run_service_pb2.ListToolCallsRequest(run_id=ids.run_id),
    "WatchSession": lambda ids: run_service_pb2.WatchSessionRequest(
        session_id=ids.session_id, after_sequence=0
    ),
}
# Each watch in it has an id and an identity of its own; tests/agent/api/test_watch_calls.py.
OF_MANY = {"WatchSessions"}
ADMINS_MAY = {"RetryRun"}
WITHOUT_ID = {
    "CreateAgent": agent_service_pb2.CreateAgentRequest(agent=agent_pb2.Agent(display_name="x")),
    "ListAgents": agent_service_pb2.ListAgentsRequest(),
    "ListSessions": agent_service_pb2.ListSessionsRequest(),
    "ListTools": agent_service_pb2.ListToolsRequest(),
    "ListHooks": agent_service_pb2.ListHooksRequest(),
    "ListModels": agent_service_pb2.ListModelsRequest(),
    "ListMcpServers": agent_service_pb2.ListMcpServersRequest(),
}
# What case 42 calls them.
CASE_METHODS = {
    "get session": "GetSession",
    "list messages": "ListMessages",
    "send message": "StartRun",
    "stream / resume": "WatchSession",
    "cancel run": "CancelRun",
    "rename session": "UpdateSession",
    "delete session": "DeleteSession",
    "get agent": "GetAgent",
    "update agent": "UpdateAgent",
    "delete agent": "DeleteAgent",
}


async def outcome(caller: Caller, method: str, request: Any, *, metadata: Any = None) -> RpcFailure:
    """How a call fails, streams included; that it does not is an error."""
    stub = caller.agents if hasattr(caller.agents, method) else caller.runs
    call = getattr(stub, method)(request, metadata=metadata or caller.metadata, timeout=10)
    try:
        answer = await (call.read() if method == "WatchSession" else call)
    except aio.AioRpcError as error:
        return failure_of(error)
    raise AssertionError(f"{method} answered {answer}")


def anonymous(failure: RpcFailure, ids: Ids) -> tuple[Any, ...]:
    """A failure with the ids that were asked for taken out."""
    text = repr((failure.code, failure.reason, failure.message, dict(failure.metadata)))
    for name in ("agent_id", "session_id", "run_id"):
        text = text.replace(getattr(ids, name), name)
    return (text, failure.violations)


class TestOtherUsers:
    """tests/cases/42-other-users-session, for every method there is."""

    def test_no_method_is_forgotten(self) -> None:
        descriptors = (agent_service_pb2.DESCRIPTOR, run_service_pb2.DESCRIPTOR)
        methods = {
            method.name
            for descriptor in descriptors
            for service in descriptor.services_by_name.values()
            for method in service.methods
        }

        assert methods == set(BY_ID) | set(WITHOUT_ID) | OF_MANY
        named = json.loads((CASE_42 / "methods.json").read_text())
        assert set(CASE_METHODS) <= set(named)
        assert set(CASE_METHODS.values()) <= set(BY_ID)

    async def test_foreign_ids_read_like_unknown_ones_and_nothing_happens(
        self, api: RunningAgent
    ) -> None:
        expected = json.loads((CASE_42 / "expected.json").read_text())
        alice = api.alice
        session = await alice.create_session()
        run = await alice.say(session.id)
        hers, random = Ids(session.agent_id, session.id, run.id), Ids()
        before = await self._everything(alice)

        for identity in (BOB, ADMIN, STRANGER):
            caller = api.caller(identity)
            for method, request in BY_ID.items():
                if identity == ADMIN and method in ADMINS_MAY:
                    continue
                foreign = await outcome(caller, method, request(hers))
                unknown = await outcome(caller, method, request(random))

                assert foreign.code.name in expected["foreign_id"], method
                assert anonymous(unknown, random) == anonymous(foreign, hers), method
            for method in ("ListAgents", "ListSessions"):
                answer = await caller.call(method, WITHOUT_ID[method])
                assert answer.ByteSize() == 0

        assert before == await self._everything(alice)

    async def test_a_page_token_is_of_no_use_to_others(self, api: RunningAgent) -> None:
        for _ in range(2):
            await api.alice.create_session()
        lists: dict[str, Any] = {
            "ListAgents": agent_service_pb2.ListAgentsRequest,
            "ListSessions": agent_service_pb2.ListSessionsRequest,
        }

        for method, request in lists.items():
            token = (await api.alice.call(method, request(page_size=1))).next_page_token
            for identity in (BOB, STRANGER):
                failure = await api.caller(identity).failure(method, request(page_token=token))
                assert failure.reason == "INVALID_PAGE_TOKEN"

    async def test_without_a_token_that_holds_nobody_gets_anywhere(
        self, api: RunningAgent, tmp_path: Path
    ) -> None:
        session = await api.alice.create_session()
        ids = Ids(session.agent_id, session.id)
        requests = {**{name: make(ids) for name, make in BY_ID.items()}, **WITHOUT_ID}
        gateway = api.keys.gateway

        def signed(issuer: str, key: Any, audience: str) -> Any:
            signer = IdentitySigner(issuer, key, audience=audience, clock=now)
            return OutgoingCalls(signer).metadata(ALICE)

        wrong = {
            "none": (("x-other", "x"),),
            "malformed": (("x-chatmind-identity", "x"),),
            "forged": signed("gateway", Keys(tmp_path / "other").gateway, "agent"),
            "for another service": signed("gateway", gateway, "knowledge"),
            "of a service that may not call": signed("agent", api.keys.agent, "agent"),
        }
        for why, metadata in wrong.items():
            for method, request in requests.items():
                failure = await outcome(api.alice, method, request, metadata=metadata)
                assert failure.code == StatusCode.UNAUTHENTICATED, (why, method)

    async def _everything(self, caller: Caller) -> list[Any]:
        """All that a user can see."""
        sessions = await caller.call("ListSessions", WITHOUT_ID["ListSessions"])
        agents = await caller.call("ListAgents", WITHOUT_ID["ListAgents"])
        found: list[Any] = [agents, sessions]
        for session in sessions.sessions:
            request = run_service_pb2.ListRunsRequest(session_id=session.id)
            found += [await caller.messages(session.id), await caller.call("ListRuns", request)]
        return found
