"""Messages on their way into the table, and the statements that many writes can share.

A journal's write is one statement, so it costs one round trip and one commit:

    held        what the writers hold, one row for each: session, run, epoch
    locked      their sessions' rows, locked; whoever waited for one reads what it has come to be
    written     their runs, changed if the epoch is still the holder's
    numbered    the sessions, counted up from what was locked
    said        the messages under the numbers in between

Each part takes its rows from the one before: where a run is no longer the writer's, nothing at all
is changed for it, and no number is lost. Whoever locks both locks the session first, then the run.

Several writes in one statement must not wait for locks, lest they keep each other waiting, for ever
even. So they skip what is locked: `free`. What was skipped is written alone.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from asyncpg import Record

from services.agent.domain.drafts import wire_size
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import MessageId, RunId, SessionId
from services.agent.domain.run_models import Run
from services.agent.store.codec import calls_to_json, citations_to_json
from services.common.ids import NewId

SKIPPING: Final = "SKIP LOCKED"
"""What a statement for several writes has in the place of `WAITING`."""

WAITING: Final = "/* waits */"
"""Where a statement says whether it waits for locks."""

LOCKED: Final = f"""
SELECT id, last_sequence, unfinished FROM chat_session
WHERE id = ANY ($12::uuid[])
FOR NO KEY UPDATE {WAITING}
"""
"""The sessions of all writes."""

FREE: Final = f"""
SELECT run.id FROM run JOIN held ON held.run_id = run.id
FOR NO KEY UPDATE OF run {WAITING}
"""
"""The runs of all writes."""

NUMBER: Final = """
UPDATE chat_session SET
    last_sequence = written.last_sequence + written.drafts, update_time = written.moment
FROM written WHERE chat_session.id = written.session_id
"""
"""Takes numbers for a CTE `written`."""

SAY: Final = """
INSERT INTO chat_message (
    session_id, sequence, id, run_id, turn, step, role, text, tool_calls, tool_call_id, tool_name,
    citations, metadata, wire_size, discarded, create_time)
SELECT
    written.session_id, written.last_sequence + draft.place, draft.id, written.id, written.turn,
    written.step_count, draft.role, draft.text, draft.tool_calls::jsonb, draft.tool_call_id,
    draft.tool_name, draft.citations::jsonb, draft.metadata::jsonb, draft.wire_size,
    written.discarded, written.moment
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::integer[], $10::integer[], $11::integer[]
) AS draft (
    id, role, text, tool_calls, tool_call_id, tool_name, citations, metadata, wire_size, number,
    place)
JOIN written ON written.number = draft.number
"""
"""Commits the drafts of the writes that a CTE `written` has; $1 to $11 are their columns."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one run.

    Attributes:
        run: which run.
        epoch: what its epoch has to be.
        drafts: what is said.
        ids: what the messages are called.
        facts: what else the statement needs, a value for each of its columns.
        parts: and what it needs of each part, be it a draft or a call.
    """

    run: Run
    epoch: int
    drafts: Sequence[Draft]
    ids: Sequence[str]
    facts: tuple[object, ...] = ()
    parts: Sequence[tuple[object, ...]] = ()

    @classmethod
    def of(
        cls,
        run: Run,
        epoch: int,
        drafts: Sequence[Draft],
        *facts: object,
        new_id: NewId,
        parts: Sequence[tuple[object, ...]] = (),
    ) -> "Write":
        """A write whose messages get new ids."""
        return cls(run, epoch, drafts, [new_id() for _ in drafts], facts, parts)

    def committed(self, written: Record) -> list[Message]:
        """The messages that its drafts are now, from the row of `written`."""
        first = written["last_sequence"] + 1
        return [
            Message(
                role=draft.role,
                text=draft.text,
                tool_calls=draft.tool_calls,
                tool_call_id=draft.tool_call_id,
                tool_name=draft.tool_name,
                citations=draft.citations,
                metadata=draft.metadata,
                id=MessageId(message_id),
                session_id=SessionId(str(written["session_id"])),
                run_id=RunId(str(written["id"])),
                sequence=first + place,
                step=written["step_count"],
                create_time=written["moment"],
                discarded=written["discarded"],
            )
            for place, (draft, message_id) in enumerate(zip(self.drafts, self.ids, strict=True))
        ]


def draft_columns(drafts: Sequence[Draft], ids: Sequence[str]) -> list[Sequence[object]]:
    """The parameters $1 to $9 of `SAY`."""
    return [
        ids,
        [draft.role.value for draft in drafts],
        [draft.text for draft in drafts],
        [_json(calls_to_json(draft.tool_calls)) for draft in drafts],
        [draft.tool_call_id for draft in drafts],
        [draft.tool_name for draft in drafts],
        [_json(citations_to_json(draft.citations)) for draft in drafts],
        [_json(dict(draft.metadata)) for draft in drafts],
        [wire_size(draft) for draft in drafts],
    ]


def columns(writes: Sequence[Write], *, part_width: int = 0) -> list[Sequence[object]]:
    """The parameters of a statement for some writes, an array each.

    $1 to $11 are the drafts; $12 to $15 session, run, epoch and number of drafts; then come the
    facts, a parameter for each, and the parts likewise, after the number of the write they belong
    to.

    Args:
        writes: of the same kind.
        part_width: how many values a part has.
    """
    drafts = [draft for write in writes for draft in write.drafts]
    ids = [each for write in writes for each in write.ids]
    parts = [part for write in writes for part in write.parts]
    told = [
        *draft_columns(drafts, ids),
        _numbers(len(write.drafts) for write in writes),
        [place for write in writes for place in range(1, len(write.drafts) + 1)],
        [write.run.session_id for write in writes],
        [write.run.id for write in writes],
        [write.epoch for write in writes],
        [len(write.drafts) for write in writes],
        *map(list, zip(*(write.facts for write in writes), strict=True)),
    ]
    if part_width:
        told.append(_numbers(len(write.parts) for write in writes))
        told += [[part[place] for part in parts] for place in range(part_width)]
    return told


def _numbers(counts: Iterable[int]) -> list[int]:
    """1, 1, 2, …: which write each of so many things belongs to."""
    return list(chain.from_iterable([n] * count for n, count in enumerate(counts, start=1)))


def _json(value: object) -> str | None:
    """As text, since an array of jsonb would take a list for a dimension of its own."""
    if not value:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
