"""A conversation over stores in memory, worked on by the real loop with models of the test's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.agent.domain.chat import ModelInfo, ModelReply, ModelRequest, Provider
from services.agent.domain.errors import ContextTooLongError
from services.agent.domain.hooks.hook import Hook, HookConfig
from services.agent.domain.hooks.registry import Hooks
from services.agent.domain.messages import Message, Role
from services.agent.domain.models import (
    AgentSettings,
    HookSetting,
    RunLimits,
    Session,
    Window,
    WindowStrategy,
)
from services.agent.domain.ports import Tool
from services.agent.domain.run_models import Run, Usage
from services.agent.domain.tools.registry import Tools
from services.agent.domain.tools.sources import KnowledgeTools, RegisteredTools
from services.agent.domain.turn.loop import Loop
from services.agent.domain.turn.plan import Planner
from services.agent.domain.turn.tokens import estimate_message
from services.common.clock import now
from tests.agent.turns import Answer, Models, Shelf
from tests.contracts.agent_stores import ALICE, LEASE, Stores, memory_stores

NOTES = "Write the new notes."


def is_summary(request: ModelRequest) -> bool:
    """Whether a model is asked for a summary."""
    return request.messages[-1].text.endswith(NOTES)


class SmallModel:
    """A model that reads so many tokens and no more; gives notes where it is asked for them.

    Attributes:
        reads: how many tokens.
        requests: all that it was asked.
        refused: those among them that were too long.
        script: answers to questions, one after the other; then it echoes.
        notes: answers where it is asked for a summary, one after the other; then they are numbered.
        tells: whether it says how much it reads when it refuses.
    """

    def __init__(self, reads: int, *, told: bool = True, usage: bool = False) -> None:
        self.reads = reads
        self.requests: list[ModelRequest] = []
        self.refused: list[ModelRequest] = []
        self.script: list[Answer] = []
        self.notes: list[Answer] = []
        self.tells = True
        self.info = ModelInfo("m", "m-1", Provider.OPENAI, reads if told else 0, default=True)
        self._usage = usage

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The next answer, or that the request is too long."""
        self.requests.append(request)
        cost = sum(estimate_message(message) for message in request.messages)
        if cost > self.reads:
            self.refused.append(request)
            raise ContextTooLongError.of("It is too long.", self.reads if self.tells else None)
        given = self.notes if is_summary(request) else self.script
        if given:
            answer = given.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        usage = Usage(cost, 10) if self._usage else None
        if is_summary(request):
            return ModelReply(f"notes {len(self.summaries)}", usage=usage)
        return ModelReply(f"to {request.messages[-1].text[:40]}", usage=usage)

    @property
    def summaries(self) -> list[ModelRequest]:
        """Where it was asked for a summary."""
        return [request for request in self.requests if is_summary(request)]

    @property
    def questions(self) -> list[ModelRequest]:
        """Where it was asked what a user asked."""
        return [request for request in self.requests if not is_summary(request)]


@dataclass
class Conversation:
    """One session and who answers in it.

    Attributes:
        model: answers.
        window: of the agent.
        limits: of the agent.
        tools: that the agent may use.
        hooks: of the agent.
        stores: all of it.
    """

    model: SmallModel
    window: Window = field(default_factory=lambda: Window(strategy=WindowStrategy.COMPACTION))
    limits: RunLimits = field(default_factory=RunLimits)
    tools: Sequence[Tool] = ()
    hooks: Sequence[type[Hook[HookConfig]]] = ()
    stores: Stores = field(default_factory=memory_stores)
    opened: Session | None = None

    async def session(self) -> Session:
        """The session, which is opened when it is asked for first."""
        if self.opened is None:
            settings = AgentSettings(
                "Helper",
                system_prompt="Be brief.",
                window=self.window,
                limits=self.limits,
                tools=tuple(tool.spec.name for tool in self.tools),
                hooks=tuple(HookSetting(hook.name) for hook in self.hooks),
            )
            self.opened = await self.stores.session(settings=settings)
        return self.opened

    async def say(self, text: str) -> Run:
        """The run that answered, once it has ended."""
        session = await self.session()
        run, _ = await self.stores.runs.start(ALICE, session.id, text)
        [claim] = await self.stores.queue.claim(lease=LEASE, most=1)
        context = await self.stores.queue.context(claim)
        await self.loop.run(context, self.stores.queue.journal(claim))
        return await self.stores.runs.get(ALICE, run.id)

    @property
    def loop(self) -> Loop:
        """Works on runs."""
        tools = RegisteredTools(Tools(self.tools))
        planner = Planner(Models(self.model), [tools, KnowledgeTools(Shelf())], Hooks(self.hooks))
        return Loop(planner, now, self.stores.memories)

    async def said(self) -> list[Message]:
        """All messages."""
        return await self.stores.said(await self.session())

    async def answers(self) -> list[Message]:
        """What the model answered."""
        return [each for each in await self.said() if each.role is Role.ASSISTANT]
