"""How messages are committed: in the statement that also checks, numbers and advances.

A journal's write is one statement, so it costs one round trip and one commit:

    locked      the session's row, locked; whoever waited for it reads what was committed meanwhile
    held        the run, changed if the epoch is still its holder's
    numbered    the session, counted up from what was locked
    said        the messages under the numbers in between

Each part takes its rows from the one before: where the run is no longer the writer's, nothing at
all is changed, and no number is lost. Whoever locks both locks the session first, then the run.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asyncpg import Record

from services.agent.domain.drafts import wire_size
from services.agent.domain.messages import Draft, Message
from services.agent.domain.models import MessageId, RunId, SessionId
from services.agent.store.codec import calls_to_json, citations_to_json
from services.common.ids import NewId

NUMBER: Final = """
UPDATE chat_session SET
    last_sequence = held.last_sequence + cardinality($1::uuid[]),
    update_time = CASE WHEN cardinality($1) > 0 THEN held.moment ELSE update_time END
FROM held WHERE chat_session.id = held.session_id
"""
"""Takes numbers from a CTE `held` of one run or none."""

SAY: Final = """
INSERT INTO chat_message (
    session_id, sequence, id, run_id, turn, step, role, text, tool_calls, tool_call_id, tool_name,
    citations, metadata, wire_size, discarded, create_time)
SELECT
    held.session_id, held.last_sequence + draft.place, draft.id, held.id, held.turn,
    held.step_count, draft.role, draft.text, draft.tool_calls::jsonb, draft.tool_call_id,
    draft.tool_name, draft.citations::jsonb, draft.metadata::jsonb, draft.wire_size,
    held.discarded, held.moment
FROM held, unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::integer[]
) WITH ORDINALITY AS draft (
    id, role, text, tool_calls, tool_call_id, tool_name, citations, metadata, wire_size, place)
"""
"""Commits the drafts of a `Batch` for a CTE `held`; $1 to $9 are its columns."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Drafts of one run that are committed together.

    Attributes:
        drafts: in their order.
        ids: what they are called once they are committed.
    """

    drafts: Sequence[Draft]
    ids: Sequence[str]

    @classmethod
    def of(cls, drafts: Sequence[Draft], new_id: NewId) -> "Batch":
        """Drafts with new ids."""
        return cls(drafts, [new_id() for _ in drafts])

    @property
    def columns(self) -> tuple[Sequence[str | int | None], ...]:
        """The parameters $1 to $9 of `SAY`, an array each."""
        drafts = self.drafts
        return (
            self.ids,
            [draft.role.value for draft in drafts],
            [draft.text for draft in drafts],
            [_json(calls_to_json(draft.tool_calls)) for draft in drafts],
            [draft.tool_call_id for draft in drafts],
            [draft.tool_name for draft in drafts],
            [_json(citations_to_json(draft.citations)) for draft in drafts],
            [_json(dict(draft.metadata)) for draft in drafts],
            [wire_size(draft) for draft in drafts],
        )

    def committed(self, held: Record) -> list[Message]:
        """The messages that they are now, from the row of `held`."""
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
                session_id=SessionId(str(held["session_id"])),
                run_id=RunId(str(held["id"])),
                sequence=sequence,
                step=held["step_count"],
                create_time=held["moment"],
                discarded=held["discarded"],
            )
            for sequence, (draft, message_id) in enumerate(
                zip(self.drafts, self.ids, strict=True), start=held["last_sequence"] + 1
            )
        ]


def _json(value: object) -> str | None:
    """As text, since an array of jsonb would take a list for a dimension of its own."""
    if not value:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
