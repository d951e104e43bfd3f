"""The scripted model of the campaigns, over real HTTP: what it says follows from what it is asked.

A user's text is `<label> <script>`, where the script names the tools of each step: `pay+look pay`
asks for two tools, then for one, then answers. Every reply says which step it is, `<label>/<step>`,
so that one that was recorded twice can be told, and so can a question that was asked again.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.agent.scripted_model import Reply, Request, ScriptedModel, calls, says, scripted_model

TOKENS = (10, 5)


class CampaignModel:
    """Answers every run's questions, and counts them.

    Attributes:
        seconds: how long it thinks.
        asked: how often it was asked for each step of each label.
        gate: it answers nothing until this is set.
    """

    def __init__(self, server: ScriptedModel, *, seconds: float) -> None:
        self.seconds = seconds
        self.asked: Counter[tuple[str, int]] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()
        self._server = server
        self._news = asyncio.Condition()
        server.otherwise = self._reply

    @property
    def base_url(self) -> str:
        """Where an OpenAI client finds it."""
        return self._server.base_url

    def forget(self) -> None:
        """Begin to count anew, and answer."""
        self.asked.clear()
        self.gate.set()

    def _reply(self, request: Request) -> Reply:
        label, script, step = read_question(request.json["messages"])
        self.asked[label, step] += 1
        del self._server.requests[:]
        return answer(label, script, step).waiting_for(self._thought())

    def _thought(self) -> asyncio.Event:
        if not self.gate.is_set() or not self.seconds:
            return self.gate
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(self.seconds, done.set)
        return done


def read_question(messages: list[dict[str, Any]]) -> tuple[str, list[list[str]], int]:
    """The label, the tools of each step, and the step that is asked for."""
    place = max(i for i, message in enumerate(messages) if message["role"] == "user")
    label, *steps = str(messages[place]["content"]).split()
    step = sum(message["role"] == "assistant" for message in messages[place:])
    return label, [each.split("+") for each in steps], step


def answer(label: str, script: list[list[str]], step: int) -> Reply:
    """What is said at a step: the calls of the script, or at its end the answer."""
    text = f"{label}/{step}"
    if step >= len(script):
        return says(text, usage=TOKENS)
    arguments = json.dumps({"step": step})
    wanted = [(f"{tool}-{step}-{i}", tool, arguments) for i, tool in enumerate(script[step])]
    return calls(*wanted, text=text, usage=TOKENS)


@asynccontextmanager
async def campaign_model(*, seconds: float = 0.0) -> AsyncIterator[CampaignModel]:
    """The model, on a port of its own, for as long as the block lasts."""
    async with scripted_model() as server:
        yield CampaignModel(server, seconds=seconds)
