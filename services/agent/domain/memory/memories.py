"""Chat memory as a session's user sees it: what the model is shown, forgetting, summarising."""

from dataclasses import dataclass, replace
from typing import Final

from services.agent.domain.drafts import wire_size
from services.agent.domain.errors import (
    AgentDeletedError,
    CompactionOffError,
    UnknownModelError,
)
from services.agent.domain.memory.compaction import Compaction, OvertakenError
from services.agent.domain.memory.models import Compacted, Memory, Summary
from services.agent.domain.memory.reading import newest, pages_before
from services.agent.domain.memory.sizes import kept_room, summary_tokens
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.memory.summary import shown_summary
from services.agent.domain.messages import Message
from services.agent.domain.models import Agent, AgentSettings, Session, SessionId, WindowStrategy
from services.agent.domain.ports import Model, ModelRegistry, ToolRegistry
from services.agent.domain.run_models import Usage
from services.agent.domain.sessions import MAX_PAGE_BYTES
from services.agent.domain.stores import AgentStore, SessionStore
from services.agent.domain.turn.context import Room, kept_from, window
from services.agent.domain.turn.request import (
    UNKNOWN_CONTEXT_TOKENS,
    Ceiling,
    window_tokens,
)
from services.agent.domain.turn.tokens import estimate_message, estimate_tokens, estimate_tool
from services.common.errors import AbortedError, NotFoundError
from services.common.identity import Identity

_WITHOUT_BOUND: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """What a session's model would be shown now, before the next question.

    Attributes:
        memory: what is remembered; a summary only where it is shown.
        messages: shown as they are.
        tokens: about what it all costs.
    """

    memory: Memory
    messages: tuple[Message, ...]
    tokens: int


class Memories:
    """Shows, clears and compacts what models remember of sessions; each for its user alone."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        agents: AgentStore,
        sessions: SessionStore,
        models: ModelRegistry,
        tools: ToolRegistry,
    ) -> None:
        self._store = store
        self._agents = agents
        self._sessions = sessions
        self._models = models
        self._tools = tools

    async def get(self, identity: Identity, session_id: SessionId) -> ShownMemory:
        """What the session's model would be shown now.

        Raises:
            NotFoundError: the user has no such session.
            AgentDeletedError: its agent is gone.
            UnknownModelError: the agent's model is no longer registered.
        """
        settings = (await self._agent(identity, session_id)).settings
        room = self._room(settings)
        memory = await self._store.get(identity, session_id)
        if settings.window.strategy is not WindowStrategy.COMPACTION:
            memory = replace(memory, summary=None)
        history = await self._history(identity, session_id, memory, room)
        remembered = () if memory.summary is None else shown_summary(memory.summary, room.tokens)
        shown = window(history, (), room, remembered=remembered)
        return ShownMemory(
            memory if shown.remembered else replace(memory, summary=None),
            _within(history[shown.since :], MAX_PAGE_BYTES),
            sum(estimate_message(message) for message in shown.messages),
        )

    async def clear(self, identity: Identity, session_id: SessionId) -> Memory:
        """Forget all that was said so far; NotFoundError where the user has no such session."""
        return await self._store.clear(identity, session_id)

    async def compact(
        self, identity: Identity, session_id: SessionId
    ) -> tuple[Summary | None, Compacted]:
        """Summarise what is older than the newest messages; gives the summary there is then.

        Raises:
            NotFoundError: the user has no such session.
            AgentDeletedError: its agent is gone.
            CompactionOffError: the agent has another strategy, or hooks, which stand around its
                runs alone.
            AbortedError: the memory was changed by another call meanwhile.
            UnknownModelError: the agent's model is no longer registered.
            ModelUnavailableError: the model cannot be asked.
            ModelRejectedError: its server refuses.
            EmptyAnswerError: it wrote nothing.
        """
        agent = await self._agent(identity, session_id)
        if agent.settings.window.strategy is not WindowStrategy.COMPACTION:
            raise CompactionOffError.of(agent.id)
        if agent.settings.hooks:
            raise CompactionOffError.with_hooks(agent.id)
        room = self._room(agent.settings)
        memory = await self._store.get(identity, session_id)
        history = await self._history(identity, session_id, memory, room)
        place = kept_from(history, kept_room(agent.settings.window, room.tokens or 0))
        before = await self._store.open_turn(identity, session_id)
        if place < len(history):
            before = history[place].sequence
        compaction = self._compaction(memory, agent.settings, room.tokens or 0)

        async def put(summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
            del usage  # it is told in the answer, there is no run to count it for
            return await self._store.put(identity, session_id, summary, revision=revision)

        pages = pages_before(self._store, identity, session_id, before=before)
        try:
            await compaction.run(pages, put)
        except OvertakenError as error:
            raise AbortedError("The memory was changed by another call; ask again.") from error
        return compaction.memory.summary, compaction.done

    async def _agent(self, identity: Identity, session_id: SessionId) -> Agent:
        session: Session = await self._sessions.get(identity, session_id)
        try:
            return await self._agents.get(identity, session.agent_id)
        except NotFoundError as error:
            raise AgentDeletedError.of(session.agent_id) from error

    def _model(self, settings: AgentSettings) -> Model:
        model = self._models.get(settings.model)
        if model is None:
            known = (info.name for info in self._models.list())
            raise UnknownModelError.of("agent.model", settings.model, known=known)
        return model

    def _room(self, settings: AgentSettings) -> Room:
        """What past turns may take; what tells of knowledge bases is left aside."""
        tools = [tool for name in settings.tools if (tool := self._tools.get(name)) is not None]
        fixed = estimate_tokens(settings.system_prompt)
        fixed += sum(estimate_tool(tool.spec) for tool in tools)
        model = self._model(settings)
        tokens = window_tokens(settings, model.info, fixed=fixed, ceiling=Ceiling())
        return Room(settings.window.messages, tokens)

    async def _history(
        self, identity: Identity, session_id: SessionId, memory: Memory, room: Room
    ) -> list[Message]:
        history, _ = await newest(
            self._store,
            identity,
            session_id,
            after=memory.after,
            before=await self._store.open_turn(identity, session_id),
            tokens=_WITHOUT_BOUND if room.tokens is None else room.tokens,
            most=room.messages,
        )
        return history

    def _compaction(self, memory: Memory, settings: AgentSettings, tokens: int) -> Compaction:
        model, length = self._model(settings), summary_tokens(settings.window, tokens)
        return Compaction(
            memory,
            model=model,
            options=settings.options,
            summary_tokens=length,
            request_tokens=(model.info.context_tokens or UNKNOWN_CONTEXT_TOKENS) - length,
        )


def _within(messages: list[Message], most: int) -> tuple[Message, ...]:
    """The newest of some messages that take at most so many bytes on the wire."""
    start = len(messages)
    while start and (most := most - wire_size(messages[start - 1])) >= 0:
        start -= 1
    return tuple(messages[start:])
