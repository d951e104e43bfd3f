"""A small gateway that keeps everything in memory and streams what the test tells it to."""
# ruff: noqa: N802 - methods are named by the contract

import hashlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import grpc
from chatmind.agent.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    approval_pb2,
    chat_memory_pb2,
    hook_pb2,
    mcp_pb2,
    model_pb2,
    replay_pb2,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    session_pb2,
    tool_pb2,
)
from chatmind.gateway.v1 import (
    access_pb2,
    access_service_pb2,
    access_service_pb2_grpc,
    gateway_service_pb2,
    gateway_service_pb2_grpc,
    message_pb2,
)
from chatmind.knowledge.v1 import (
    document_pb2,
    knowledge_base_pb2,
    knowledge_service_pb2,
    knowledge_service_pb2_grpc,
    search_pb2,
)
from grpc_health.v1 import health, health_pb2_grpc
from grpc_status import rpc_status

from services.common.errors import NotFoundError, ServiceError, UnauthenticatedError
from services.common.status import to_status

KEY = "cm_test_key"
SESSION_ID, RUN_ID = (str(uuid.UUID(int=number)) for number in (1, 2))

Event = gateway_service_pb2.StreamMessagesResponse
Base = knowledge_base_pb2.KnowledgeBase
Document = document_pb2.Document
RunState = run_pb2.Run.State
ResourceT = TypeVar("ResourceT")

PAGE = 2


@dataclass(slots=True)
class Hold:
    """Keeps a stream open without a word, until the client leaves or the test ends."""

    released: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class State:
    """What the gateway knows, and what it was asked.

    Attributes:
        streams: for each stream in turn what it sends; an error ends it, a callable is called.
        watches: the same for documents, each stream for the next upload.
        run: what is told of the run that answers.
        runs: all runs there are.
        calls: the tool calls of every run.
        approvals: those of every run.
        resolved: how they were answered.
        resolve_errors: how the next answers are refused.
        replays: what comes of one, with the agent as "recorded" and as "current".
        sessions: all sessions there are.
        messages: of every session, oldest first.
        memory: of every session.
        compacted: what comes of a compaction.
        active_runs: of the session in turn, each time that it is looked up.
        send_errors: how the next messages are refused, each though it was sent.
        refuse: raises for the names of uploads that are refused.
    """

    agents: list[agent_pb2.Agent] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    hits: list[search_pb2.Hit] = field(default_factory=list)
    keys: list[access_pb2.ApiKey] = field(default_factory=list)
    models: list[model_pb2.Model] = field(default_factory=list)
    hooks: list[hook_pb2.Hook] = field(default_factory=list)
    tools: list[tool_pb2.Tool] = field(default_factory=list)
    mcp_servers: list[mcp_pb2.McpServer] = field(default_factory=list)
    approved: list[agent_service_pb2.ApproveMcpToolsRequest] = field(default_factory=list)
    streams: deque[Sequence[Any]] = field(default_factory=deque)
    watches: deque[Sequence[Any]] = field(default_factory=deque)
    run: run_pb2.Run = field(
        default_factory=lambda: run_pb2.Run(id=RUN_ID, state=RunState.STATE_THINKING)
    )
    runs: list[run_pb2.Run] = field(default_factory=list)
    calls: list[run_pb2.ToolCallRecord] = field(default_factory=list)
    approvals: list[approval_pb2.Approval] = field(default_factory=list)
    resolved: list[run_service_pb2.ResolveApprovalRequest] = field(default_factory=list)
    resolve_errors: deque[ServiceError] = field(default_factory=deque)
    replays: dict[str, replay_pb2.Replay] = field(default_factory=dict)
    sessions: list[session_pb2.Session] = field(default_factory=list)
    messages: list[session_pb2.Message] = field(default_factory=list)
    active_runs: deque[str] = field(default_factory=deque)
    memory: chat_memory_pb2.ChatMemory = field(default_factory=chat_memory_pb2.ChatMemory)
    compacted: agent_service_pb2.CompactSessionResponse = field(
        default_factory=agent_service_pb2.CompactSessionResponse
    )
    last_sequence: int = 0
    sent: list[gateway_service_pb2.SendMessageRequest] = field(default_factory=list)
    send_errors: deque[ServiceError] = field(default_factory=deque)
    resumed_after: list[int] = field(default_factory=list)
    refuse: Callable[[str], None] = lambda _: None
    deleted: list[str] = field(default_factory=list)


@contextmanager
def serving(state: State, *, address: str = "127.0.0.1:0") -> Iterator[str]:
    """The gateway's address, for as long as the block lasts; its health is open to all."""
    server = grpc.server(ThreadPoolExecutor(16), interceptors=[_Doorkeeper()])
    _add_all(_Servicer(state), server)
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        for script in (*state.streams, *state.watches):
            for step in script:
                if isinstance(step, Hold):
                    step.released.set()
        server.stop(0).wait(10)


def said(text: str, sequence: int, **more: Any) -> Event:
    """A message of the assistant's."""
    message = message_pb2.Message(
        session_id=SESSION_ID,
        run_id=RUN_ID,
        sequence=sequence,
        text=text,
        **{"role": message_pb2.Message.ROLE_ASSISTANT, **more},
    )
    return Event(message=message, through_sequence=sequence)


def ran(
    state: message_pb2.RunUpdate.State.ValueType, through: int, *, run_id: str = RUN_ID
) -> Event:
    """A change of the run's state."""
    return Event(
        run=message_pb2.RunUpdate(run_id=run_id, session_id=SESSION_ID, state=state),
        through_sequence=through,
    )


def heartbeat(through: int) -> Event:
    """A sign of life."""
    beat = message_pb2.Heartbeat()
    beat.time.GetCurrentTime()
    return Event(heartbeat=beat, through_sequence=through)


class _Doorkeeper(grpc.ServerInterceptor):
    """Admits calls with the key."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        metadata = dict(details.invocation_metadata)
        is_open = details.method.startswith("/grpc.health.")
        if handler is None or is_open or metadata.get("authorization") == f"Bearer {KEY}":
            return handler

        def refuse(request: Any, context: grpc.ServicerContext) -> NoReturn:
            _fail(context, UnauthenticatedError("The API key is unknown."))

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(refuse, handler.request_deserializer, handler.response_serializer)


class _Servicer:
    """All services at once."""

    def __init__(self, state: State) -> None:
        self._state = state

    # agents

    def ListAgents(self, request: Any, context: Any) -> Any:
        named = [a for a in self._state.agents if request.display_name in ("", a.display_name)]
        page, token = _page(named, request)
        return agent_service_pb2.ListAgentsResponse(agents=page, next_page_token=token)

    def GetAgent(self, request: Any, context: Any) -> Any:
        agent = next(a for a in self._state.agents if a.id == request.agent_id)
        return agent_service_pb2.GetAgentResponse(agent=agent)

    def CreateAgent(self, request: Any, context: Any) -> Any:
        agent = _created(agent_pb2.Agent, request.agent)
        self._state.agents.append(agent)
        return agent_service_pb2.CreateAgentResponse(agent=agent)

    def UpdateAgent(self, request: Any, context: Any) -> Any:
        agent = next(a for a in self._state.agents if a.id == request.agent.id)
        request.update_mask.MergeMessage(request.agent, agent, True, True)
        return agent_service_pb2.UpdateAgentResponse(agent=agent)

    def DeleteAgent(self, request: Any, context: Any) -> Any:
        self._state.agents = [a for a in self._state.agents if a.id != request.agent_id]
        return agent_service_pb2.DeleteAgentResponse()

    def ListModels(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListModelsResponse(models=self._state.models)

    def ListMcpServers(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListMcpServersResponse(mcp_servers=self._state.mcp_servers)

    def ApproveMcpTools(self, request: Any, context: Any) -> Any:
        self._state.approved.append(request)
        return agent_service_pb2.ApproveMcpToolsResponse(mcp_server=self._state.mcp_servers[0])

    def ListTools(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListToolsResponse(tools=self._state.tools)

    def ListHooks(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListHooksResponse(hooks=self._state.hooks)

    def GetSession(self, request: Any, context: Any) -> Any:
        if request.session_id != SESSION_ID:
            _fail(context, NotFoundError("No such session."))
        active = self._state.active_runs
        session = session_pb2.Session(
            id=request.session_id,
            last_sequence=self._state.last_sequence,
            active_run_id=active.popleft() if active else "",
        )
        return agent_service_pb2.GetSessionResponse(session=session)

    def UpdateSession(self, request: Any, context: Any) -> Any:
        self._own(request.session.id, context)
        session = session_pb2.Session(id=SESSION_ID, title="Old", time_zone="UTC")
        request.update_mask.MergeMessage(request.session, session, True, True)
        self._state.sessions = [session]
        return agent_service_pb2.UpdateSessionResponse(session=session)

    def ListSessions(self, request: Any, context: Any) -> Any:
        run, every = request.parent_run_id, request.include_sub_sessions
        found = [
            each
            for each in self._state.sessions
            if each.parent_run_id == run or (every and not run)
        ]
        page, token = _page(found, request)
        return agent_service_pb2.ListSessionsResponse(sessions=page, next_page_token=token)

    def ListMessages(self, request: Any, context: Any) -> Any:
        newest_first = request.order == request.ORDER_NEWEST_FIRST
        messages = self._state.messages[:: -1 if newest_first else 1]
        page, token = _page(messages, request)
        return agent_service_pb2.ListMessagesResponse(messages=page, next_page_token=token)

    def GetChatMemory(self, request: Any, context: Any) -> Any:
        self._own(request.session_id, context)
        return agent_service_pb2.GetChatMemoryResponse(memory=self._state.memory)

    def ClearChatMemory(self, request: Any, context: Any) -> Any:
        self._own(request.session_id, context)
        self._state.memory.Clear()
        return agent_service_pb2.ClearChatMemoryResponse(cleared_through_sequence=7)

    def CompactSession(self, request: Any, context: Any) -> Any:
        self._own(request.session_id, context)
        return self._state.compacted

    def _own(self, session_id: str, context: Any) -> None:
        if session_id != SESSION_ID:
            _fail(context, NotFoundError("No such session."))

    # runs and messages

    def GetRun(self, request: Any, context: Any) -> Any:
        return run_service_pb2.GetRunResponse(run=self._state.run)

    def ListRuns(self, request: Any, context: Any) -> Any:
        page, token = _page(self._state.runs, request)
        return run_service_pb2.ListRunsResponse(runs=page, next_page_token=token)

    def CancelRun(self, request: Any, context: Any) -> Any:
        self._state.run.cancel_requested = True
        return run_service_pb2.CancelRunResponse(run=self._state.run)

    def RetryRun(self, request: Any, context: Any) -> Any:
        self._state.run.state = RunState.STATE_IDLE
        return run_service_pb2.RetryRunResponse(run=self._state.run)

    def ReplayRun(self, request: Any, context: Any) -> Any:
        current = request.agent == run_service_pb2.REPLAY_AGENT_CURRENT
        replay = self._state.replays["current" if current else "recorded"]
        return run_service_pb2.ReplayRunResponse(replay=replay)

    def ListToolCalls(self, request: Any, context: Any) -> Any:
        page, token = _page(self._state.calls, request)
        return run_service_pb2.ListToolCallsResponse(tool_calls=page, next_page_token=token)

    def ListApprovals(self, request: Any, context: Any) -> Any:
        found = [each for each in self._state.approvals if request.state in {0, each.state}]
        page, token = _page(found, request)
        return run_service_pb2.ListApprovalsResponse(approvals=page, next_page_token=token)

    def ResolveApproval(self, request: Any, context: Any) -> Any:
        self._state.resolved.append(request)
        if self._state.resolve_errors:
            _fail(context, self._state.resolve_errors.popleft())
        [approval] = [each for each in self._state.approvals if each.id == request.approval_id]
        approve = request.decision == run_service_pb2.ResolveApprovalRequest.DECISION_APPROVE
        states = approval_pb2.Approval
        approval.state = states.STATE_APPROVED if approve else states.STATE_DENIED
        return run_service_pb2.ResolveApprovalResponse(approval=approval, run=self._state.run)

    def SendMessage(self, request: Any, context: Any) -> Any:
        self._state.sent.append(request)
        if self._state.send_errors:
            _fail(context, self._state.send_errors.popleft())
        return gateway_service_pb2.SendMessageResponse(
            session_id=SESSION_ID, run_id=RUN_ID, message_id=RUN_ID, sequence=1
        )

    def StreamMessages(self, request: Any, context: Any) -> Iterator[Event]:
        self._state.resumed_after.append(request.after_sequence)
        yield from _played(self._state.streams, context)

    # knowledge

    def ListKnowledgeBases(self, request: Any, context: Any) -> Any:
        named = [b for b in self._state.bases if request.display_name in ("", b.display_name)]
        page, token = _page(named, request)
        return knowledge_service_pb2.ListKnowledgeBasesResponse(
            knowledge_bases=page, next_page_token=token
        )

    def GetKnowledgeBase(self, request: Any, context: Any) -> Any:
        base = next(b for b in self._state.bases if b.id == request.knowledge_base_id)
        return knowledge_service_pb2.GetKnowledgeBaseResponse(knowledge_base=base)

    def CreateKnowledgeBase(self, request: Any, context: Any) -> Any:
        base = _created(Base, request.knowledge_base)
        self._state.bases.append(base)
        return knowledge_service_pb2.CreateKnowledgeBaseResponse(knowledge_base=base)

    def DeleteKnowledgeBase(self, request: Any, context: Any) -> Any:
        self._state.deleted.append(request.knowledge_base_id)
        receipt = knowledge_service_pb2.DeletionReceipt(documents=len(self._state.documents))
        return knowledge_service_pb2.DeleteKnowledgeBaseResponse(receipt=receipt)

    def DeleteDocument(self, request: Any, context: Any) -> Any:
        self._state.deleted.append(request.document_id)
        receipt = knowledge_service_pb2.DeletionReceipt(documents=1, chunks=3)
        return knowledge_service_pb2.DeleteDocumentResponse(receipt=receipt)

    def ListDocuments(self, request: Any, context: Any) -> Any:
        page, token = _page(self._state.documents, request)
        return knowledge_service_pb2.ListDocumentsResponse(documents=page, next_page_token=token)

    def UploadDocument(self, requests: Iterator[Any], context: Any) -> Any:
        header = next(requests).header
        content = b"".join(part.data for part in requests)
        try:
            self._state.refuse(header.display_name)
        except ServiceError as error:
            _fail(context, error)
        assert header.content_hash == hashlib.sha256(content).hexdigest()
        document = Document(
            id=str(uuid.uuid4()),
            knowledge_base_id=header.knowledge_base_id,
            display_name=header.display_name,
            media_type=header.media_type,
            size_bytes=len(content),
            state=Document.STATE_PENDING,
        )
        self._state.documents.append(document)
        self._state.contents[header.display_name] = content
        return knowledge_service_pb2.UploadDocumentResponse(document=document)

    def WatchDocument(self, request: Any, context: Any) -> Iterator[Any]:
        (document,) = (d for d in self._state.documents if d.id == request.document_id)
        if not self._state.watches:
            document.state, document.chunks_done, document.chunks_total = Document.STATE_READY, 2, 2
            yield knowledge_service_pb2.WatchDocumentResponse(document=document)
            return
        for change in _played(self._state.watches, context):
            document.MergeFrom(change)
            yield knowledge_service_pb2.WatchDocumentResponse(document=document)

    def Search(self, request: Any, context: Any) -> Any:
        return knowledge_service_pb2.SearchResponse(hits=self._state.hits[: request.top_k])

    # access

    def CreateApiKey(self, request: Any, context: Any) -> Any:
        key = access_pb2.ApiKey(
            id=f"k{len(self._state.keys) + 1}",
            display_name=request.display_name,
            tenant=request.tenant or "default",
            user_id=request.user_id,
            roles=request.roles or [access_pb2.ROLE_MEMBER],
        )
        self._state.keys.append(key)
        return access_service_pb2.CreateApiKeyResponse(api_key=key, secret="cm_secret")

    def ListApiKeys(self, request: Any, context: Any) -> Any:
        page, token = _page(self._state.keys, request)
        return access_service_pb2.ListApiKeysResponse(api_keys=page, next_page_token=token)

    def RevokeApiKey(self, request: Any, context: Any) -> Any:
        key = next((k for k in self._state.keys if k.id == request.api_key_id), None)
        if key is None:
            _fail(context, NotFoundError("No such key.", metadata={"id": request.api_key_id}))
        key.revoke_time.GetCurrentTime()
        return access_service_pb2.RevokeApiKeyResponse(api_key=key)


def _add_all(servicer: _Servicer, server: grpc.Server) -> None:
    """Only what the servicer has is served; the rest is UNIMPLEMENTED, as grpc has it."""
    for name, module in (
        ("GatewayService", gateway_service_pb2_grpc),
        ("AccessService", access_service_pb2_grpc),
        ("AgentService", agent_service_pb2_grpc),
        ("RunService", run_service_pb2_grpc),
        ("KnowledgeService", knowledge_service_pb2_grpc),
    ):
        base = getattr(module, f"{name}Servicer")
        combined = type(name, (_Servicer, base), {})
        getattr(module, f"add_{name}Servicer_to_server")(combined(servicer._state), server)


def _page(found: Sequence[ResourceT], request: Any) -> tuple[Sequence[ResourceT], str]:
    """Pages so small that lists have several."""
    start = int(request.page_token or 0)
    end = start + min(request.page_size or PAGE, PAGE)
    return found[start:end], str(end) if end < len(found) else ""


def _created(kind: type[Any], given: Any) -> Any:
    made = kind(id=str(uuid.uuid4()))
    made.MergeFrom(given)
    return made


def _played(scripts: deque[Sequence[Any]], context: Any) -> Iterator[Any]:
    for step in scripts.popleft() if scripts else ():
        if isinstance(step, ServiceError):
            _fail(context, step)
        elif isinstance(step, Hold):
            if not context.add_callback(step.released.set):
                step.released.set()  # the client has left already
            step.released.wait(30)
        elif callable(step):
            step()
        else:
            yield step


def _fail(context: Any, error: ServiceError) -> NoReturn:
    context.abort_with_status(rpc_status.to_status(to_status(error, domain="gateway.chatmind")))
    raise AssertionError("unreachable")
