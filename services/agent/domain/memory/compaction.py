"""Replaces the older part of a session by a summary, a portion at a time.

Each portion is one question to the agent's model: the notes so far and the messages that follow go
in, new notes come out. Notes that end with a turn are kept at once, so that whatever fails later
costs one portion: until then the memory is what it was before, and then it is what the notes
say. Messages are read by pages and never changed.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from services.agent.domain.chat import ModelReply, ModelRequest
from services.agent.domain.errors import ContextTooLongError, EmptyAnswerError
from services.agent.domain.memory import summary as words
from services.agent.domain.memory.models import Compacted, Memory, Place, Said, Summary
from services.agent.domain.messages import Role
from services.agent.domain.models import ModelOptions
from services.agent.domain.ports import Model
from services.agent.domain.run_models import Usage
from services.agent.domain.turn.tokens import MESSAGE_TOKENS, estimate_tokens
from services.common.paging import Listing

Pages: TypeAlias = Callable[[Place], Awaitable[Listing[Said]]]
"""The messages that are to be summarised, from behind a place on, oldest first."""


class Put(Protocol):
    """Keeps a summary."""

    async def __call__(self, summary: Summary, *, revision: int, usage: Usage) -> Memory | None:
        """The memory as it is then; None where it is no longer of that revision.

        What the summary cost is counted in either case.
        """


MOST_PORTION_TOKENS: Final = 32_000
"""What one question may cost at most, however much the model reads."""

_LEAST_PORTION_TOKENS = 64
_ENOUGH_PENDING = 50


class OutOfTokensError(Exception):
    """There are not enough tokens left to summarise the next portion."""


class OvertakenError(Exception):
    """The memory was changed by somebody else meanwhile."""


class Compaction:
    """One compaction; `memory`, `done` and `owed` tell how far it got, also where it fails.

    Attributes:
        memory: as it is now.
        done: what was kept, and what the model processed as far as that was counted.
        owed: what it processed besides, which is not counted yet.
        request_tokens: what one question may cost; halved where the model reads less.
        refused: whether it does.
        overtaken: whether somebody else changed the memory.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        model: Model,
        options: ModelOptions,
        summary_tokens: int,
        request_tokens: int,
        tokens_left: int | None = None,
    ) -> None:
        """A compaction that has not begun.

        Args:
            memory: what is remembered before it.
            model: writes the summary.
            options: the agent's.
            summary_tokens: how long the summary may be.
            request_tokens: what one question may cost, without its answer.
            tokens_left: what all of it may cost; None does not bound that.
        """
        self.memory = memory
        self.done = Compacted()
        self.owed = Usage()
        self.request_tokens = min(request_tokens, MOST_PORTION_TOKENS)
        self.refused = False
        self.overtaken = False
        self._model = model
        self._options = options
        self._summary_tokens = summary_tokens
        self._tokens_left = tokens_left
        self._notes = "" if memory.summary is None else memory.summary.text
        self._question = "" if memory.summary is None else memory.summary.question
        self._pending: deque[Said] = deque()
        self._final = False
        self._place = memory.after
        self._unkept = Compacted()

    async def run(self, pages: Pages, put: Put) -> None:
        """Summarise all that the pages give.

        Raises:
            OutOfTokensError: there are not enough tokens left.
            OvertakenError: the memory was changed by somebody else.
            ModelUnavailableError: the model cannot be asked.
            ModelRejectedError: its server refuses.
            EmptyAnswerError: it wrote nothing.
        """
        while await self._read(pages):
            count, ends_turn = await self._summarise()
            for _ in range(count):
                self._pass(self._pending.popleft())
            if ends_turn:
                await self._keep(put)

    async def _read(self, pages: Pages) -> bool:
        """Have enough messages at hand; tells whether there are any."""
        while not self._final and len(self._pending) < _ENOUGH_PENDING:
            page = await pages(self._pending[-1].place if self._pending else self._place)
            self._pending += page.items
            self._final = not page.more
        return bool(self._pending)

    async def _summarise(self) -> tuple[int, bool]:
        """Take the next portion into the notes; how many messages it is and if it ends a turn."""
        while True:
            room = self._room()
            record = [words.recorded(each.message, tokens=room // 2) for each in self._pending]
            costs = [estimate_tokens(line) + 1 for line in record]
            turns = [each.place.turn for each in self._pending]
            count, ends_turn = words.portion(turns, costs, room=room, final=self._final)
            request = words.summary_request(
                self._notes,
                record[:count],
                tokens=self._summary_tokens,
                options=self._options,
            )
            try:
                self._notes = await self._ask(request)
            except ContextTooLongError:
                self.refused = True
                self.request_tokens //= 2
                if self._room(least=0) < _LEAST_PORTION_TOKENS:
                    raise
                continue
            before = sum(costs[:count])
            self._unkept = replace(
                self._unkept,
                messages=self._unkept.messages + count,
                tokens_before=self._unkept.tokens_before + before,
            )
            return count, ends_turn

    def _room(self, *, least: int = _LEAST_PORTION_TOKENS) -> int:
        """What the messages of one question may cost."""
        bare = words.summary_request(
            self._notes, (), tokens=self._summary_tokens, options=self._options
        )
        return max(self.request_tokens - words.request_tokens(bare), least)

    async def _ask(self, request: ModelRequest) -> str:
        cost = words.request_tokens(request)
        spent = self.owed.total + self.done.usage.total
        if self._tokens_left is not None and self._tokens_left < (
            spent + cost + self._summary_tokens
        ):
            raise OutOfTokensError
        reply = await self._model.complete(request)
        self.owed += _usage(reply, cost)
        text = words.clipped(reply.text, tokens=self._summary_tokens)
        if not text:
            raise EmptyAnswerError("The model gave no summary.")
        return text

    def _pass(self, said: Said) -> None:
        self._place = said.place
        if said.message.role is Role.USER and not self._question:
            self._question = words.first_question(said.message.text)

    async def _keep(self, put: Put) -> None:
        earlier = self.memory.summary
        summary = Summary(
            text=self._notes,
            question=self._question,
            through_turn=self._place.turn,
            messages=self._unkept.messages + (0 if earlier is None else earlier.messages),
            model=self._model.info.name,
        )
        kept = await put(summary, revision=self.memory.revision, usage=self.owed)
        self.done = replace(self.done, usage=self.done.usage + self.owed)
        self.owed = Usage()
        if kept is None:
            self.overtaken = True
            raise OvertakenError
        before = 0 if self.done.messages or earlier is None else estimate_tokens(earlier.text)
        self.done = replace(
            self.done,
            messages=self.done.messages + self._unkept.messages,
            tokens_before=self.done.tokens_before + self._unkept.tokens_before + before,
        )
        self.memory, self._unkept = kept, Compacted()


def _usage(reply: ModelReply, cost: int) -> Usage:
    return reply.usage or Usage(cost, estimate_tokens(reply.text) + MESSAGE_TOKENS)
