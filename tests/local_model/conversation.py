"""Turns of a conversation with an agent whose model is a real one, seen from outside."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.e2e.installation import Installation, JsonObject
from tests.e2e.test_first_steps import AGENT, GATEWAY

_FINAL = {"STATE_FINISHED", "STATE_ERROR", "STATE_CANCELLED"}


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one message.

    Attributes:
        messages: all that followed the user's message, in order.
        run: the run at its end, as the gateway tells it.
        seconds: from sending the message to the run's end.
    """

    messages: Sequence[JsonObject]
    run: JsonObject
    seconds: float

    @property
    def finished(self) -> bool:
        """Whether the model ended it with an answer."""
        ended = (self.run["state"], self.run.get("stopReason"))
        return ended == ("STATE_FINISHED", "END_TURN")

    @property
    def calls(self) -> list[JsonObject]:
        """Every tool call that the model asked for."""
        return [call for each in self.messages for call in each.get("toolCalls", [])]

    @property
    def called(self) -> list[str]:
        """The names of those calls."""
        return [call["name"] for call in self.calls]

    @property
    def results(self) -> list[JsonObject]:
        """The TOOL messages."""
        return [each for each in self.messages if each["role"] == "ROLE_TOOL"]

    @property
    def answer(self) -> str:
        """What the user reads last; empty if nothing was answered."""
        last = self.messages[-1] if self.messages else {}
        return str(last.get("text", "")) if last.get("role") == "ROLE_ASSISTANT" else ""

    @property
    def cited(self) -> set[str]:
        """The documents that the answer rests on."""
        cited = self.messages[-1].get("citations", []) if self.messages else []
        return {str(each["documentName"]) for each in cited}

    @property
    def marks_its_sources(self) -> bool:
        """Whether the model put the numbers of passages into its answer itself."""
        metadata = self.messages[-1].get("metadata", {}) if self.messages else {}
        return metadata.get("citation_basis") == "marked"

    def told(self) -> str:
        """As a line for people."""
        how = f"{self.run['state'].removeprefix('STATE_')}/{self.run.get('stopReason', '')}"
        text = " ".join(self.answer.split())
        return f"{self.seconds:6.1f} s  {how}  {', '.join(self.called) or '-'}  {text[:160]!r}"


@dataclass(slots=True)
class Conversation:
    """A session with one agent.

    Attributes:
        installation: serves it.
        agent_id: answers in it.
        session_id: empty before the first message.
    """

    installation: Installation
    agent_id: str
    session_id: str = ""

    def say(self, text: str) -> Turn:
        """Sends a message and waits until its run has ended."""
        begun = time.monotonic()
        request = {"text": text, "agentId": self.agent_id}
        if self.session_id:
            request = {"text": text, "sessionId": self.session_id}
        sent = self.installation.call(f"{GATEWAY}/SendMessage", request).message
        self.session_id = sent["sessionId"]
        watch = {"sessionId": self.session_id, "afterSequence": sent["sequence"]}
        with self.installation.stream(f"{GATEWAY}/StreamMessages", watch) as events:
            messages, run = _until_ended(events, sent["runId"])
        return Turn(messages, run, time.monotonic() - begun)


def _until_ended(events: Iterator[JsonObject], run_id: str) -> tuple[list[JsonObject], JsonObject]:
    messages: list[JsonObject] = []
    for event in events:
        if "message" in event:
            messages.append(event["message"])
        elif (run := event.get("run")) and run["runId"] == run_id and run["state"] in _FINAL:
            return messages, run
    raise AssertionError(f"the stream ended before the run did, after {len(messages)} messages")


def create_agent(installation: Installation, **settings: object) -> str:
    """A new agent whose answers vary as little as the model allows; gives its id."""
    options = {"temperature": 0, "seed": "1", "maxOutputTokens": 400}
    agent = {"options": options, **settings}
    created = installation.call(f"{AGENT}/CreateAgent", {"agent": agent}).message
    return str(created["agent"]["id"])
