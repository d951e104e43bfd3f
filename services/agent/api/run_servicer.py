"""RunService over gRPC."""

from collections.abc import AsyncIterator

from chatmind.agent.v1 import run_service_pb2 as pb
from chatmind.agent.v1 import run_service_pb2_grpc

from services.agent.api.convert import runs as convert
from services.agent.api.convert.approvals import (
    MOST_APPROVALS,
    from_approval,
    to_answer,
    to_filter,
    to_scope,
)
from services.agent.api.convert.common import to_request_key
from services.agent.api.convert.replays import from_replay
from services.agent.api.convert.sessions import from_message
from services.agent.api.watch_calls import WatchCalls
from services.agent.domain.approval_models import ApprovalId
from services.agent.domain.approvals import Approvals
from services.agent.domain.models import RunId, SessionId
from services.agent.domain.replay.replays import Replays
from services.agent.domain.runs import Runs
from services.common.convert import canonical_id
from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.common.paging import PagedList, PageTokens

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["RunService"].full_name


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Answers with what the use cases give."""

    def __init__(
        self,
        runs: Runs,
        approvals: Approvals,
        watches: WatchCalls,
        *,
        replays: Replays,
        tokens: PageTokens,
    ) -> None:
        self._runs = runs
        self._approvals = approvals
        self._replays = replays
        self._watches = watches
        self._tokens = tokens

    async def StartRun(self, request: pb.StartRunRequest, context: Context) -> pb.StartRunResponse:
        """The accepted message and its run."""
        run, question = await self._runs.start(
            current_identity(),
            SessionId(canonical_id(request.session_id)),
            convert.to_question(request),
            when_busy=convert.to_when_busy(request),
            request=to_request_key(request.request_id, convert.spelled_out(request)),
        )
        return pb.StartRunResponse(run=convert.from_run(run), message=from_message(question))

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        """One run."""
        run = await self._runs.get(current_identity(), RunId(canonical_id(request.run_id)))
        return pb.GetRunResponse(run=convert.from_run(run))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        """A session's runs."""
        identity, session_id = current_identity(), SessionId(canonical_id(request.session_id))
        paged = PagedList.of(self._tokens, "runs", identity, session_id)
        page = paged.page(request.page_size, request.page_token)
        runs = await self._runs.list(identity, session_id, page)
        return pb.ListRunsResponse(
            runs=map(convert.from_run, runs.items),
            next_page_token=paged.next_token(runs, lambda run: run.turn),
        )

    async def CancelRun(
        self, request: pb.CancelRunRequest, context: Context
    ) -> pb.CancelRunResponse:
        """The run as it is now."""
        run = await self._runs.cancel(current_identity(), RunId(canonical_id(request.run_id)))
        return pb.CancelRunResponse(run=convert.from_run(run))

    async def RetryRun(self, request: pb.RetryRunRequest, context: Context) -> pb.RetryRunResponse:
        """The run, back in line."""
        run = await self._runs.retry(current_identity(), RunId(canonical_id(request.run_id)))
        return pb.RetryRunResponse(run=convert.from_run(run))

    async def ReplayRun(
        self, request: pb.ReplayRunRequest, context: Context
    ) -> pb.ReplayRunResponse:
        """What comes of a run that is driven anew."""
        replay = await self._replays.replay(
            current_identity(),
            RunId(canonical_id(request.run_id)),
            current=request.agent == pb.REPLAY_AGENT_CURRENT,
        )
        return pb.ReplayRunResponse(replay=from_replay(replay))

    async def ListToolCalls(
        self, request: pb.ListToolCallsRequest, context: Context
    ) -> pb.ListToolCallsResponse:
        """A run's tool calls."""
        identity, run_id = current_identity(), RunId(canonical_id(request.run_id))
        paged = PagedList.of(self._tokens, "tool_calls", identity, run_id)
        page = paged.page(request.page_size, request.page_token)
        calls = await self._runs.tool_calls(identity, run_id, page)
        return pb.ListToolCallsResponse(
            tool_calls=map(convert.from_tool_call, calls.items),
            next_page_token=paged.next_token(calls, lambda call: call.position),
        )

    async def ListApprovals(
        self, request: pb.ListApprovalsRequest, context: Context
    ) -> pb.ListApprovalsResponse:
        """The approvals of a session or of a run."""
        identity, (session_id, run_id) = current_identity(), to_scope(request)
        filters = (session_id or "", run_id or "", str(request.state))
        paged = PagedList.of(self._tokens, "approvals", identity, *filters)
        page = paged.page(min(request.page_size, MOST_APPROVALS), request.page_token)
        approvals = await self._approvals.list(
            identity, page, session_id=session_id, run_id=run_id, state=to_filter(request)
        )
        return pb.ListApprovalsResponse(
            approvals=map(from_approval, approvals.items),
            next_page_token=paged.next_token(approvals, lambda each: each.position),
        )

    async def ResolveApproval(
        self, request: pb.ResolveApprovalRequest, context: Context
    ) -> pb.ResolveApprovalResponse:
        """The approval and its run as they are now."""
        approval, run = await self._approvals.resolve(
            current_identity(),
            ApprovalId(canonical_id(request.approval_id)),
            to_answer(request),
            request=to_request_key(request.request_id, request),
        )
        return pb.ResolveApprovalResponse(
            approval=from_approval(approval), run=convert.from_run(run)
        )

    async def WatchSession(  # type: ignore[override]  # a coroutine that writes
        self, request: pb.WatchSessionRequest, context: Context
    ) -> None:
        """What happens in a session, for as long as the caller listens."""
        await self._watches.one(current_identity(), request, context)

    async def WatchSessions(  # type: ignore[override]  # a coroutine that writes
        self, request_iterator: AsyncIterator[pb.WatchSessionsRequest], context: Context
    ) -> None:
        """What happens in many sessions; each watch brings its own identity."""
        await self._watches.many(request_iterator, context)
