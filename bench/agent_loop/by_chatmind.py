"""The conversation by ChatMind: its planner, loop and model, with a journal in memory."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.agent_loop.by_hand import KEY, MODEL, PROMPT, QUESTION, Converse, look_up
from bench.conversation import STEPS, TOOL
from services.agent.clients.models import Models, open_models
from services.agent.clients.models_file import EndpointSettings, ModelSettings
from services.agent.domain.approval_models import Question
from services.agent.domain.chat import Ending, RunContext, ToolEffect
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.messages import Draft, Message, Role
from services.agent.domain.models import (
    Agent,
    AgentId,
    AgentSettings,
    MessageId,
    RunId,
    SessionId,
    ToolCallId,
)
from services.agent.domain.ports import Knowledge
from services.agent.domain.replay.recorded import NoMemories
from services.agent.domain.run_models import Offered, Run, RunState, Usage
from services.agent.domain.tools.function import function_tool
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools, ToolSource
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.common.clock import now
from services.common.identity import Identity
from services.common.ids import new_id

PACKAGES = ("chatmind",)

_SESSION = SessionId("session")
_IDENTITY = Identity(tenant="bench", user_id="bench")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_AGENT = Agent(
    AgentId("agent"),
    _IDENTITY.tenant,
    _IDENTITY.user_id,
    AgentSettings("bench", system_prompt=PROMPT, tools=(TOOL,)),
    _START,
    _START,
)


class NoKnowledge(Knowledge):
    """The agent has no base."""

    async def search(self, *_: Any, **__: Any) -> Any:
        """Finds nothing."""
        return []

    async def bases(self, *_: Any, **__: Any) -> Any:
        """There are none."""
        return {}


class MemoryJournal:
    """Keeps the messages of one run; satisfies `ports.RunJournal`."""

    def __init__(self) -> None:
        self.run_id, self._session_id = RunId(new_id()), _SESSION
        self.messages: list[Message] = []
        self._step = 0
        self._commit(Draft(Role.USER, QUESTION))

    async def set_state(self, state: RunState, *, offered: Offered | None = None) -> None:
        """Nobody looks."""

    async def append_assistant(
        self, draft: Draft, *, usage: Usage, starting: Collection[int] = ()
    ) -> Message:
        """Keep it."""
        self._step += 1
        return self._commit(draft)

    async def start_tool_calls(self, call_ids: Sequence[ToolCallId]) -> None:
        """Nobody goes on with a run whose process is gone."""

    async def append_tool_results(
        self, drafts: Sequence[Draft], *, then: RunState | None = None
    ) -> Sequence[Message]:
        """Keep them."""
        return [self._commit(draft) for draft in drafts]

    async def park(self, questions: Sequence[Question], *, within: timedelta) -> None:
        """Nobody is asked: the tool only reads."""
        raise NotImplementedError

    async def remember(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        """Nothing is summarised."""

    async def finish(
        self,
        ending: Ending,
        closing: Sequence[Draft] = (),
        *,
        usage: Usage | None = None,
        steps: int = 0,
    ) -> Sequence[Message]:
        """Keep the answer."""
        return [self._commit(draft) for draft in closing]

    def context(self) -> RunContext:
        """What the run begins with."""
        run = Run(
            self.run_id,
            self._session_id,
            _IDENTITY.tenant,
            _IDENTITY.user_id,
            _AGENT.id,
            self.messages[0].id,
            turn=1,
            state=RunState.IDLE,
            create_time=_START,
        )
        return RunContext(run, _AGENT, _IDENTITY, (), tuple(self.messages))

    def _commit(self, draft: Draft) -> Message:
        message = Message(
            role=draft.role,
            text=draft.text,
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
            tool_name=draft.tool_name,
            citations=draft.citations,
            metadata=draft.metadata,
            id=MessageId(f"m{len(self.messages) + 1}"),
            session_id=self._session_id,
            run_id=self.run_id,
            sequence=len(self.messages) + 1,
            step=self._step,
            create_time=_START,
        )
        self.messages.append(message)
        return message


@asynccontextmanager
async def open_loop(base_url: str) -> AsyncIterator[Loop]:
    """The loop with its model behind this address."""
    settings = ModelSettings(MODEL, (EndpointSettings(base_url, MODEL, KEY),))
    async with open_models([settings]) as models:
        yield _loop(models)


def _loop(models: Models) -> Loop:
    tools = Tools([function_tool(look_up, idempotent=True, effect=ToolEffect.READ_ONLY)])
    sources: list[ToolSource] = [RegisteredTools(tools), KnowledgeTools(NoKnowledge())]
    return Loop(planner=Planner(models, sources), clock=now, memories=NoMemories())


@asynccontextmanager
async def open_contender(base_url: str) -> AsyncIterator[Converse]:
    """The loop with journals in memory."""
    async with open_loop(base_url) as loop:

        async def converse() -> str:
            journal = MemoryJournal()
            ending = await loop.run(journal.context(), journal)
            assert ending is not None
            assert ending.state is RunState.FINISHED
            assert len(journal.messages) == 2 * STEPS
            return journal.messages[-1].text

        yield converse
