"""AgentService over gRPC."""

from chatmind.agent.v1 import agent_service_pb2 as pb
from chatmind.agent.v1 import agent_service_pb2_grpc

from services.agent.api.convert import agents as convert_agents
from services.agent.api.convert import hooks as convert_hooks
from services.agent.api.convert import mcp as convert_mcp
from services.agent.api.convert import memories as convert_memories
from services.agent.api.convert import sessions as convert_sessions
from services.agent.api.convert.common import to_request_key
from services.agent.domain.agents import Agents
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.mcp.access import McpAccess
from services.agent.domain.memory.memories import Memories
from services.agent.domain.models import AgentId, SessionId
from services.agent.domain.ports import ModelRegistry, ToolRegistry
from services.agent.domain.sessions import Sessions
from services.common.convert import canonical_id, from_time, required_id, to_paths, to_text
from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.common.paging import PagedList, PageTokens

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["AgentService"].full_name

_NEWEST_FIRST = pb.ListMessagesRequest.ORDER_NEWEST_FIRST


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """Answers with what the use cases give."""

    def __init__(
        self,
        agents: Agents,
        sessions: Sessions,
        memories: Memories,
        *,
        tools: ToolRegistry,
        models: ModelRegistry,
        hooks: Hooks,
        mcp: McpAccess,
        tokens: PageTokens,
    ) -> None:
        self._agents = agents
        self._sessions = sessions
        self._memories = memories
        self._tools = tools
        self._models = models
        self._hooks = hooks
        self._mcp = mcp
        self._tokens = tokens

    async def CreateAgent(
        self, request: pb.CreateAgentRequest, context: Context
    ) -> pb.CreateAgentResponse:
        """A new agent."""
        settings = convert_agents.to_settings(request.agent)
        key = to_request_key(request.request_id, request)
        agent = await self._agents.create(current_identity(), settings, request=key)
        return pb.CreateAgentResponse(agent=convert_agents.from_agent(agent))

    async def GetAgent(self, request: pb.GetAgentRequest, context: Context) -> pb.GetAgentResponse:
        """One agent."""
        agent = await self._agents.get(current_identity(), AgentId(canonical_id(request.agent_id)))
        return pb.GetAgentResponse(agent=convert_agents.from_agent(agent))

    async def ListAgents(
        self, request: pb.ListAgentsRequest, context: Context
    ) -> pb.ListAgentsResponse:
        """The agents that the caller sees."""
        identity = current_identity()
        name = to_text(request.display_name, field="display_name", max_bytes=200)
        paged = PagedList.of(self._tokens, "agents", identity, name)
        page = paged.page(request.page_size, request.page_token)
        agents = await self._agents.list(identity, page, display_name=name)
        return pb.ListAgentsResponse(
            agents=map(convert_agents.from_agent, agents.items),
            next_page_token=paged.next_token(agents, lambda agent: agent.id),
        )

    async def UpdateAgent(
        self, request: pb.UpdateAgentRequest, context: Context
    ) -> pb.UpdateAgentResponse:
        """The agent with the named fields changed."""
        agent_id = AgentId(required_id(request.agent.id, field="agent.id"))
        new, changed = convert_agents.to_changes(request.agent, request.update_mask)
        agent = await self._agents.update(current_identity(), agent_id, new, changed)
        return pb.UpdateAgentResponse(agent=convert_agents.from_agent(agent))

    async def DeleteAgent(
        self, request: pb.DeleteAgentRequest, context: Context
    ) -> pb.DeleteAgentResponse:
        """When the agent was deleted."""
        time = await self._agents.delete(
            current_identity(), AgentId(canonical_id(request.agent_id))
        )
        return pb.DeleteAgentResponse(delete_time=from_time(time))

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: Context
    ) -> pb.CreateSessionResponse:
        """A new session."""
        session = await self._sessions.create(
            current_identity(),
            convert_sessions.to_agent_id(request.session),
            title=convert_sessions.to_title(request.session),
            time_zone=convert_sessions.to_session_zone(request.session),
            request=to_request_key(request.request_id, request),
        )
        return pb.CreateSessionResponse(session=convert_sessions.from_session(session))

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Context
    ) -> pb.GetSessionResponse:
        """One session."""
        session_id = SessionId(canonical_id(request.session_id))
        session = await self._sessions.get(current_identity(), session_id)
        return pb.GetSessionResponse(session=convert_sessions.from_session(session))

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        """The caller's sessions."""
        identity = current_identity()
        which = convert_sessions.to_which(request)
        paged = PagedList.of(
            self._tokens,
            "sessions",
            identity,
            which.agent_id or "",
            which.parent_run_id or "",
            str(which.sub_sessions),
        )
        page = paged.page(request.page_size, request.page_token)
        sessions = await self._sessions.list(identity, page, which)
        return pb.ListSessionsResponse(
            sessions=map(convert_sessions.from_session, sessions.items),
            next_page_token=paged.next_token(sessions, lambda session: session.id),
        )

    async def UpdateSession(
        self, request: pb.UpdateSessionRequest, context: Context
    ) -> pb.UpdateSessionResponse:
        """The session as it is now."""
        new = request.session
        session_id = SessionId(required_id(new.id, field="session.id"))
        named = to_paths(request.update_mask, changeable=convert_sessions.CHANGEABLE)
        session = await self._sessions.update(
            current_identity(),
            session_id,
            title=convert_sessions.to_title(new) if "title" in named else None,
            time_zone=convert_sessions.to_session_zone(new) if "time_zone" in named else None,
        )
        return pb.UpdateSessionResponse(session=convert_sessions.from_session(session))

    async def DeleteSession(
        self, request: pb.DeleteSessionRequest, context: Context
    ) -> pb.DeleteSessionResponse:
        """What was deleted with the session."""
        session_id = SessionId(canonical_id(request.session_id))
        deleted = await self._sessions.delete(current_identity(), session_id)
        return convert_sessions.from_deleted(deleted)

    async def ListMessages(
        self, request: pb.ListMessagesRequest, context: Context
    ) -> pb.ListMessagesResponse:
        """What was said."""
        identity, session_id = current_identity(), SessionId(canonical_id(request.session_id))
        newest_first = request.order == _NEWEST_FIRST
        order = "newest" if newest_first else "oldest"
        paged = PagedList.of(self._tokens, "messages", identity, session_id, order)
        page = paged.page(request.page_size, request.page_token)
        messages = await self._sessions.messages(
            identity, session_id, page, newest_first=newest_first
        )
        return pb.ListMessagesResponse(
            messages=map(convert_sessions.from_message, messages.items),
            next_page_token=paged.next_token(messages, lambda message: message.sequence),
        )

    async def GetChatMemory(
        self, request: pb.GetChatMemoryRequest, context: Context
    ) -> pb.GetChatMemoryResponse:
        """What the session's model would be shown now."""
        session_id = SessionId(canonical_id(request.session_id))
        shown = await self._memories.get(current_identity(), session_id)
        return pb.GetChatMemoryResponse(memory=convert_memories.from_shown(shown))

    async def ClearChatMemory(
        self, request: pb.ClearChatMemoryRequest, context: Context
    ) -> pb.ClearChatMemoryResponse:
        """Up to where the session is forgotten."""
        session_id = SessionId(canonical_id(request.session_id))
        memory = await self._memories.clear(current_identity(), session_id)
        return pb.ClearChatMemoryResponse(cleared_through_sequence=memory.cleared_turn)

    async def CompactSession(
        self, request: pb.CompactSessionRequest, context: Context
    ) -> pb.CompactSessionResponse:
        """What was summarised."""
        session_id = SessionId(canonical_id(request.session_id))
        summary, done = await self._memories.compact(current_identity(), session_id)
        return convert_memories.from_compacted(summary, done)

    async def ListTools(
        self, request: pb.ListToolsRequest, context: Context
    ) -> pb.ListToolsResponse:
        """The tools there are."""
        return pb.ListToolsResponse(tools=convert_agents.from_tools(self._tools.list()))

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """The models there are."""
        return pb.ListModelsResponse(models=convert_agents.from_models(self._models.list()))

    async def ListHooks(
        self, request: pb.ListHooksRequest, context: Context
    ) -> pb.ListHooksResponse:
        """The hooks there are."""
        return pb.ListHooksResponse(hooks=convert_hooks.from_infos(self._hooks.list()))

    async def ListMcpServers(
        self, request: pb.ListMcpServersRequest, context: Context
    ) -> pb.ListMcpServersResponse:
        """The MCP servers there are."""
        agent_id = AgentId(canonical_id(request.agent_id)) if request.agent_id else None
        servers = await self._mcp.list(current_identity(), agent_id)
        return pb.ListMcpServersResponse(mcp_servers=map(convert_mcp.from_server, servers))

    async def ApproveMcpTools(
        self, request: pb.ApproveMcpToolsRequest, context: Context
    ) -> pb.ApproveMcpToolsResponse:
        """The MCP server with what was approved."""
        agent_id = AgentId(canonical_id(request.agent_id))
        server = await self._mcp.approve(
            current_identity(), agent_id, request.server, request.digests
        )
        return pb.ApproveMcpToolsResponse(mcp_server=convert_mcp.from_server(server))
