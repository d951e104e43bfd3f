"""A process that sends messages to one session; prints a line of JSON for each.

python -m tests.agent.submitter DSN SESSION_ID NAME COUNT QUEUE_LIMIT (together | in-turn)
"""

import asyncio
import json
import sys
from typing import Any

from services.agent.domain.errors import QueueFullError
from services.agent.domain.models import SessionId
from tests.contracts.agent_stores import ALICE, agent_pool, postgres_stores


async def submit(
    dsn: str, session_id: SessionId, name: str, count: int, limit: int, manner: str
) -> None:
    """Send the messages and print what becomes of them."""
    async with agent_pool(dsn, max_size=5) as pool:
        runs = postgres_stores(pool, queue_limit=limit).runs

        async def send(number: int) -> dict[str, Any]:
            try:
                _, message = await runs.start(ALICE, session_id, f"{name} {number}")
            except QueueFullError as full:
                return full.metadata
            return {"number": number, "sequence": message.sequence}

        if manner == "together":
            told = await asyncio.gather(*(send(number) for number in range(count)))
        else:
            told = [await send(number) for number in range(count)]
    for each in told:
        print(json.dumps(each))  # noqa: T201


def main() -> None:
    """Do what the command line says."""
    dsn, session_id, name, count, limit, manner = sys.argv[1:]
    asyncio.run(submit(dsn, SessionId(session_id), name, int(count), int(limit), manner))


if __name__ == "__main__":
    main()
