"""T-D15: a session of 2,000 messages with a model that reads 8k tokens, over real HTTP.

The first 1,900 messages are put into the database. With CHATMIND_TEST_LONG=1 they are all said.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from chatmind.agent.v1 import agent_pb2, agent_service_pb2, run_pb2, session_pb2

from tests.agent.running import ALICE, FakeKnowledge, Keys, Process, fake_knowledge
from tests.agent.scripted_model import Reply, Request, ScriptedModel, calls, says, scripted_model

READS = 8192
EARLIER_TURNS = 475
"""Of four messages each: a question, a call, its result and the answer."""

LATER_TURNS = 50
WORDS = "the backup of host {n} is kept for {n} days in the vault " * 4

_EARLIER = """
INSERT INTO agent.chat_message (
    session_id, sequence, id, run_id, turn, step, role, text, tool_calls, tool_call_id, tool_name,
    wire_size, create_time)
SELECT
    $1, 4 * turn + part, gen_random_uuid(), runs.id, 4 * turn + 1, 1,
    (ARRAY['user', 'assistant', 'tool', 'assistant'])[part],
    CASE part WHEN 2 THEN '' ELSE
        (ARRAY['question ', '', 'found ', 'answer '])[part] || turn || ': '
        || replace($2, '{n}', turn::text) END,
    CASE part WHEN 2 THEN
        '[{"id": "c", "name": "calculator", "arguments_json": "{}"}]'::jsonb END,
    CASE part WHEN 3 THEN 'c' END, CASE part WHEN 3 THEN 'calculator' END, 1000, now()
FROM generate_series(0, $3::integer - 1) AS turn,
    LATERAL (SELECT gen_random_uuid() AS id, turn AS of_turn) AS runs,
    generate_series(1, 4) AS part
"""
_NUMBERED = "UPDATE agent.chat_session SET last_sequence = $2 WHERE id = $1"


class SmallModel:
    """Reads 8k tokens, refuses more as vLLM does, and keeps notes where it is asked to.

    Attributes:
        refused: how many requests were too long.
        summaries: how many summaries it was asked for.
        hangs_at: the summary that it never finishes.
        hung: set once it is asked for that one.
        faults: what was wrong with requests.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.summaries = 0
        self.hangs_at = 0
        self.hung = asyncio.Event()
        self.faults: list[str] = []
        self.longest = 0

    def __call__(self, request: Request) -> Reply:
        messages = request.json["messages"]
        tokens = sum(len(str(each.get("content") or "")) // 4 + 4 for each in messages)
        self.longest = max(self.longest, tokens)
        if tokens > READS:
            self.refused += 1
            text = f"This model's maximum context length is {READS} tokens."
            body = f'{{"error": {{"message": "{text}", "code": 400}}}}'.encode()
            return Reply(body=body, status=400)
        self.faults += faults_of(messages)
        if messages[-1]["content"].endswith("Write the new notes."):
            return self._summary(messages)
        if messages[-1]["role"] == "user" and "compute" in messages[-1]["content"]:
            return calls(("sum", "calculator", '{"expression": "6 * 7"}'))
        asked = [each["content"] for each in messages if each["role"] == "user"][-1]
        return says(f"To {asked}", usage=(tokens, 9))

    def _summary(self, messages: list[dict[str, Any]]) -> Reply:
        self.summaries += 1
        covered = re.findall(r"\[user\] question (\d+)", messages[-1]["content"])
        notes = says(f"Notes {self.summaries}, to question {covered[-1] if covered else '?'}.")
        if self.summaries == self.hangs_at:
            self.hung.set()
            return notes.waiting_for(asyncio.Event())
        return notes


def faults_of(messages: list[dict[str, Any]]) -> list[str]:
    """Calls without their results, results without their calls, and instructions that are gone."""
    faults, open_calls = [], list[str]()
    for message in messages:
        if message["role"] == "tool":
            if not open_calls or message["tool_call_id"] != open_calls.pop(0):
                faults.append("a result without its call")
        else:
            if open_calls:
                faults.append("a call without its result")
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    if open_calls:
        faults.append("a call without its result")
    if messages[0]["role"] != "system":
        faults.append("no instructions")
    return faults


@pytest.fixture
async def knowledge(tmp_path: Path) -> AsyncIterator[FakeKnowledge]:
    async with fake_knowledge(Keys(tmp_path / "identity")) as knowledge:
        yield knowledge


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as model:
        yield model


async def everything(alice: Any, session_id: str) -> list[session_pb2.Message]:
    """All messages, page by page."""
    found: list[session_pb2.Message] = []
    token = ""
    while True:
        request = agent_service_pb2.ListMessagesRequest(
            session_id=session_id, page_size=200, page_token=token
        )
        page = await alice.call("ListMessages", request)
        found += page.messages
        token = page.next_page_token
        if not token:
            return found


async def had_before(alice: Any, database: str, session_id: str) -> None:
    """The earlier part of the conversation: put into the database, or said."""
    if os.environ.get("CHATMIND_TEST_LONG") == "1":
        for number in range(EARLIER_TURNS):
            text = f"question {number}: compute " + WORDS.replace("{n}", str(number))
            run = await alice.ended((await alice.say(session_id, text)).id)
            assert run.state == run_pb2.Run.STATE_FINISHED
        return
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(_EARLIER, session_id, WORDS, EARLIER_TURNS)
        await connection.execute(_NUMBERED, session_id, 4 * EARLIER_TURNS)
    finally:
        await connection.close()


@pytest.mark.timeout(900 if os.environ.get("CHATMIND_TEST_LONG") == "1" else 120)
async def test_a_session_of_2000_messages_keeps_answering_and_stays_readable(
    database: str, knowledge: FakeKnowledge, model: ScriptedModel, tmp_path: Path
) -> None:
    small = SmallModel()
    model.otherwise = small
    models = tmp_path / "models.toml"
    models.write_text(
        f'[models.small]\nbase_url = "{model.base_url}"\nmodel = "small"\n'
        f"context_tokens = {READS}\n"
    )

    def process(role: str) -> Process:
        return Process(
            database,
            knowledge.keys,
            CHATMIND_AGENT_ROLE=role,
            CHATMIND_AGENT_KNOWLEDGE_ADDRESS=f"127.0.0.1:{knowledge.port}",
            CHATMIND_AGENT_LEASE_SECONDS="1",
            CHATMIND_AGENT_LOG_LEVEL="error",  # nobody reads the pipe meanwhile
            CHATMIND_MODELS_FILE=str(models),
        )

    worker = process("worker")
    async with process("api").started() as channel, AsyncExitStack() as workers:
        alice = knowledge.keys.caller(channel, ALICE)
        window = agent_pb2.Window(strategy=agent_pb2.Window.STRATEGY_COMPACTION)
        agent = await alice.create_agent(
            system_prompt="Be brief.", window=window, tools=["calculator"]
        )
        session = await alice.create_session(agent.id)
        await workers.enter_async_context(worker.started())
        await had_before(alice, database, session.id)
        before = await everything(alice, session.id)

        # A worker is killed while a summary is made: in the middle of the first compaction where
        # the earlier part is put into the database.
        small.hangs_at = small.summaries + (5 if small.summaries == 0 else 1)
        runs = []
        hung = asyncio.ensure_future(small.hung.wait())
        number = EARLIER_TURNS
        while not hung.done():
            text = f"question {number}: " + WORDS.replace("{n}", str(number))
            runs.append((await alice.say(session.id, text)).id)
            number += 1
            ended = asyncio.ensure_future(alice.ended(runs[-1], within=60))
            await asyncio.wait({hung, ended}, return_when=asyncio.FIRST_COMPLETED)
        await worker.end(signal.SIGKILL)
        memory = (
            await alice.call(
                "GetChatMemory", agent_service_pb2.GetChatMemoryRequest(session_id=session.id)
            )
        ).memory
        kept = memory.summary.through_sequence
        await workers.enter_async_context(process("worker").started())
        await alice.ended(runs[-1], within=60)

        for later in range(number, number + LATER_TURNS):
            compute = " compute" if later % 5 == 0 else ""
            text = f"question {later}:{compute} " + WORDS.replace("{n}", str(later))
            runs.append((await alice.say(session.id, text)).id)
            await alice.ended(runs[-1], within=60)

        answered = [await alice.run(run_id) for run_id in runs]
        said = await everything(alice, session.id)
        memory = (
            await alice.call(
                "GetChatMemory", agent_service_pb2.GetChatMemoryRequest(session_id=session.id)
            )
        ).memory

    assert {run.state for run in answered} == {run_pb2.Run.STATE_FINISHED}
    assert {run.stop_reason for run in answered} == {run_pb2.Run.STOP_REASON_END_TURN}
    assert (small.refused, small.faults) == (0, [])
    assert len(said) >= 2000
    assert said[: len(before)] == before
    assert [each.sequence for each in said] == list(range(1, len(said) + 1))
    assert small.summaries > small.hangs_at
    assert memory.summary.through_sequence > kept
    assert memory.summary.first_question.startswith("question 0: ")
    assert memory.tokens < READS
    assert memory.messages[-1].id == said[-1].id
    questions = [each for each in model.requests if each.json["messages"][-1]["role"] == "user"]
    last = questions[-1].json["messages"]
    assert last[1]["content"].startswith("question 0: ")
    assert f"Notes {small.summaries}," in last[2]["content"]
