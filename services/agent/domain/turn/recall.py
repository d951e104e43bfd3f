"""What the model of one run is shown of the conversation, as the agent's window has it.

With WINDOW the messages came with the run. With the other strategies they are read once it is known
how much the model reads; and where they do not fit and the strategy is COMPACTION, older turns are
summarised first. Nothing here ends a run: without a summary it goes on with what fits.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from services.agent.domain.chat import ModelInfo, ModelReply, ModelRequest, RunContext
from services.agent.domain.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelRejectedError,
    ModelUnavailableError,
)
from services.agent.domain.hooks.around import Around
from services.agent.domain.memory.compaction import (
    Compaction,
    OutOfTokensError,
    OvertakenError,
    Pages,
)
from services.agent.domain.memory.models import Memory, Summary
from services.agent.domain.memory.reading import newest, pages_before
from services.agent.domain.memory.sizes import kept_room, summary_tokens
from services.agent.domain.memory.store import MemoryStore
from services.agent.domain.messages import Message
from services.agent.domain.models import WindowStrategy
from services.agent.domain.ports import Model, RunJournal
from services.agent.domain.turn.context import kept_from, whole_cost
from services.agent.domain.turn.plan import Plan
from services.agent.domain.turn.request import (
    UNKNOWN_CONTEXT_TOKENS,
    Ceiling,
    Prepared,
    prepare,
)
from services.agent.domain.turn.steps import Condensed
from services.agent.domain.turn.tokens import estimate_tokens

TELLING_TOKENS: Final = 1000
"""A question of fewer tokens tells nothing of how its model counts: too much else is sent."""

MOST_SCALE: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Aside:
    """A run's model, asked what is no step of the run; its hooks stand around that as well."""

    around: Around
    model: Model

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    async def complete(self, request: ModelRequest) -> ModelReply:
        return await self.around.aside(self.model, request)


class Recall:
    """One run's view of the conversation."""

    def __init__(
        self,
        plan: Plan,
        context: RunContext,
        *,
        around: Around,
        journal: RunJournal,
        memories: MemoryStore,
    ) -> None:
        self._plan = plan
        self._around = around
        self._context = context
        self._journal = journal
        self._memories = memories
        self._window = context.agent.settings.window
        self._memory: Memory | None = None
        self._more = False
        self._tried = False
        self._ceiling = Ceiling()
        self._refused_at = 0
        self.summarised_through: int | None = None

    async def prepare(self, turn: Sequence[Message], *, closing: bool) -> Prepared:
        """The next question of the run; see `request.prepare`."""
        if self._memory is None and self._window.strategy is not WindowStrategy.WINDOW:
            await self._remember()
            await self._read(self._prepared(turn, closing=closing).room.tokens or 0)
        prepared = self._prepared(turn, closing=closing)
        through = self._summary.through_turn if self._summary and prepared.summarised else None
        self.summarised_through = through
        return prepared

    def crowded(self, prepared: Prepared, turn: Sequence[Message]) -> bool:
        """Whether older turns are to be summarised before the question is asked."""
        room = prepared.room.tokens
        if self._window.strategy is not WindowStrategy.COMPACTION or self._tried or room is None:
            return False
        cost = whole_cost(self._context.history, turn)
        cost += 0 if self._summary is None else estimate_tokens(self._summary.text)
        crowded = self._more or cost > room * self._window.compacting_at
        return crowded and self._kept_from(room) > 0

    async def condense(
        self, prepared: Prepared, tokens: int | None, *, seconds: float
    ) -> Condensed:
        """Summarise older turns, as far as that succeeds.

        Args:
            prepared: the question that is crowded.
            tokens: what the run can spend on it; None does not bound that.
            seconds: how long it may take.

        Raises:
            FencedError: the run is no longer this worker's.
        """
        self._tried = True
        room = prepared.room.tokens or 0
        compaction = self._compaction(room, tokens)
        before = self._kept_turn(room)
        try:
            async with asyncio.timeout(seconds):
                await compaction.run(self._pages(before), self._journal.remember)
        except OvertakenError:
            self._log("somebody else changed the memory")
        except OutOfTokensError:
            self._log("too few tokens are left")
        except TimeoutError:
            self._log("it took too long")
        except (ModelUnavailableError, ModelRejectedError, EmptyAnswerError) as error:
            self._log(error.message)
        await self._take_over(compaction, prepared)
        return Condensed(compaction.done.usage, compaction.owed)

    def shrink(
        self,
        prepared: Prepared,
        turn: Sequence[Message],
        error: ContextTooLongError,
        *,
        closing: bool,
    ) -> bool:
        """Have a question that its server refuses as too long be asked once more, half as long.

        Half of what the server says it reads, where it says so. False where that was tried already,
        and where nothing can be left out, as the running turn alone is too long.
        """
        if self._refused_at == len(turn):
            return False
        self._refused_at = len(turn)
        self._bound(min(prepared.tokens, error.context_tokens or prepared.tokens) // 2)
        self._tried = False
        return self._prepared(turn, closing=closing).tokens < prepared.tokens

    def learn(self, prepared: Prepared, reply: ModelReply) -> None:
        """Take over how the model counts, where it counts more than is estimated."""
        if reply.usage is not None and prepared.tokens >= TELLING_TOKENS:
            scale = min(reply.usage.input_tokens / prepared.tokens, MOST_SCALE)
            self._ceiling = replace(self._ceiling, scale=max(self._ceiling.scale, scale))

    @property
    def history(self) -> Sequence[Message]:
        """Messages of the turns before, all that the model can have been shown among them."""
        return self._context.history

    @property
    def _summary(self) -> Summary | None:
        return None if self._memory is None else self._memory.summary

    def _prepared(self, turn: Sequence[Message], *, closing: bool) -> Prepared:
        return prepare(
            self._plan,
            self._context,
            turn,
            closing=closing,
            summary=self._summary,
            ceiling=self._ceiling,
        )

    async def _remember(self) -> None:
        run, identity = self._context.run, self._context.identity
        memory = await self._memories.get(identity, run.session_id)
        summary = memory.summary
        covers = summary is not None and summary.through_turn < run.turn
        if self._window.strategy is not WindowStrategy.COMPACTION or not covers:
            memory = replace(memory, summary=None)
        self._memory = memory

    async def _read(self, tokens: int) -> None:
        """Read the turns that follow what is summarised, as far as the model can be shown them."""
        memory = self._memory or Memory()
        history, self._more = await newest(
            self._memories,
            self._context.identity,
            self._context.run.session_id,
            after=memory.after,
            before=self._context.run.turn,
            tokens=tokens,
        )
        self._context = replace(self._context, history=history)

    def _kept_from(self, room: int) -> int:
        return kept_from(self._context.history, kept_room(self._window, room))

    def _kept_turn(self, room: int) -> int:
        """The turn before which all are summarised."""
        history, place = self._context.history, self._kept_from(room)
        return history[place].sequence if place < len(history) else self._context.run.turn

    def _compaction(self, room: int, tokens: int | None) -> Compaction:
        model, length = self._plan.model, summary_tokens(self._window, room)
        context = int((model.info.context_tokens or UNKNOWN_CONTEXT_TOKENS) / self._ceiling.scale)
        return Compaction(
            self._memory or Memory(),
            model=_Aside(self._around, model),
            options=self._context.agent.settings.options,
            summary_tokens=length,
            request_tokens=min(context - length, self._ceiling.tokens or context),
            tokens_left=tokens,
        )

    def _pages(self, before: int) -> Pages:
        return pages_before(
            self._memories,
            self._context.identity,
            self._context.run.session_id,
            before=before,
        )

    async def _take_over(self, compaction: Compaction, prepared: Prepared) -> None:
        if compaction.refused and compaction.done.messages:
            self._bound(compaction.request_tokens)
        if compaction.overtaken:
            await self._remember()
        else:
            self._memory = compaction.memory
        await self._read(prepared.room.tokens or 0)

    def _bound(self, tokens: int) -> None:
        known = self._ceiling.tokens
        most = tokens if known is None else min(known, tokens)
        self._ceiling = replace(self._ceiling, tokens=most)

    def _log(self, why: str) -> None:
        structlog.get_logger("memory").warning("not summarised", why=why)
