"""The whole road from a file to a streamed, cited answer, as a newcomer drives it from outside."""

import base64
import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import ROOT, Installation, JsonObject
from tests.e2e.manual import QUESTIONS, manual

pytestmark = pytest.mark.timeout(300)

KNOWLEDGE = "chatmind.knowledge.v1.KnowledgeService"
AGENT = "chatmind.agent.v1.AgentService"
GATEWAY = "chatmind.gateway.v1.GatewayService"
RUN = "chatmind.agent.v1.RunService"

UNAUTHENTICATED = 16


def create_base(installation: Installation, name: str) -> str:
    """A new base; gives its id."""
    request = {"knowledgeBase": {"displayName": name}}
    created = installation.call(f"{KNOWLEDGE}/CreateKnowledgeBase", request).message
    return str(created["knowledgeBase"]["id"])


def add_document(installation: Installation, base_id: str, name: str, content: bytes) -> JsonObject:
    """Uploads a document and watches it to its end; gives the last state of it."""
    request = {
        "knowledgeBaseId": base_id,
        "displayName": name,
        "content": base64.b64encode(content).decode(),
    }
    document = installation.call(f"{KNOWLEDGE}/CreateDocument", request).message["document"]
    assert document["state"] == "STATE_PENDING"
    watched = installation.call(f"{KNOWLEDGE}/WatchDocument", {"documentId": document["id"]})
    assert watched.status == 0, watched.error
    settled: JsonObject = watched.messages[-1]["document"]
    return settled


@pytest.fixture(scope="module")
def base_id(installation: Installation) -> str:
    """A base with the README and a manual of more than 200 KB, both READY."""
    base_id = create_base(installation, "works")
    for name, content in (
        ("README.md", (ROOT / "README.md").read_bytes()),
        ("manual.md", manual().encode()),
    ):
        document = add_document(installation, base_id, name, content)
        assert document["state"] == "STATE_READY"
        assert document["chunksDone"] == document["chunksTotal"] > 0
    return base_id


@pytest.fixture(scope="module")
def session(installation: Installation, base_id: str) -> dict[str, str]:
    """An agent on the base, and a session with one question asked."""
    agent = {"displayName": "Librarian", "knowledgeBaseIds": [base_id]}
    created = installation.call(f"{AGENT}/CreateAgent", {"agent": agent}).message["agent"]
    request = {"agentId": created["id"], "text": "How long are backups kept?"}
    return installation.call(f"{GATEWAY}/SendMessage", request).message


class TestStart:
    """What stands once the ready line is printed."""

    def test_the_key_is_its_owners_alone(self, installation: Installation) -> None:
        """The admin key lies in a file that nobody else can read."""
        mode = Path(installation.key_file).stat().st_mode

        assert stat.S_IMODE(mode) == 0o600

    def test_every_service_is_listed_by_reflection(self, installation: Installation) -> None:
        """One address lists all that clients can call."""
        done = subprocess.run(
            [*installation.buf_curl, f"http://{installation.grpc}", "--list-services"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        listed = set(done.stdout.split())

        assert {KNOWLEDGE, AGENT, GATEWAY, RUN, "chatmind.gateway.v1.AccessService"} <= listed

    @pytest.mark.parametrize("key", ["", "nonsense", "cm_0_0"])
    def test_no_call_goes_without_a_key(self, installation: Installation, key: str) -> None:
        """A missing or wrong key is refused before any work."""
        answer = installation.call(f"{AGENT}/ListAgents", {}, key=key)

        assert answer.status == UNAUTHENTICATED

    def test_the_guide_is_there(self, installation: Installation) -> None:
        """A starter agent knows the project's own documents."""
        agents = installation.call(f"{AGENT}/ListAgents", {}).message["agents"]
        bases = installation.call(f"{KNOWLEDGE}/ListKnowledgeBases", {}).message["knowledgeBases"]

        assert [a["displayName"] for a in agents][:1] == ["Guide"]
        assert bases[0]["documentCount"] != "0"

    def test_status_page_and_health(self, installation: Installation) -> None:
        """HTTP tells how things are."""
        page = httpx.get(installation.http)
        health = httpx.get(f"{installation.http}/healthz")

        assert "ChatMind" in page.text
        assert health.is_success


class TestSearch:
    """The right section first."""

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_a_question_finds_its_section(
        self, installation: Installation, base_id: str, question: str
    ) -> None:
        """The first hit is the section that answers, with its path and lines."""
        request = {"knowledgeBaseIds": [base_id], "query": question, "topK": 3}
        hits = installation.call(f"{KNOWLEDGE}/Search", request).message["hits"]
        first = hits[0]["chunk"]

        assert ["Works manual", *QUESTIONS[question]] == first["headingPath"]
        assert int(first["startLine"]) <= int(first["endLine"])


class TestConversation:
    """A message, its answer, and what survives."""

    def messages(
        self, installation: Installation, session_id: str, *, after: int, count: int
    ) -> list[JsonObject]:
        """The next completed messages of the stream."""
        request = {"sessionId": session_id, "afterSequence": str(after)}
        with installation.stream(f"{GATEWAY}/StreamMessages", request) as events:
            return list(first_messages(events, count))

    def test_completed_messages_arrive_in_order(
        self, installation: Installation, session: dict[str, str]
    ) -> None:
        """USER, ASSISTANT with a tool call, TOOL, ASSISTANT with citations; 1, 2, 3, 4."""
        user, asks, tool, answers = self.messages(
            installation, session["sessionId"], after=0, count=4
        )

        assert [user["role"], asks["role"], tool["role"], answers["role"]] == [
            "ROLE_USER",
            "ROLE_ASSISTANT",
            "ROLE_TOOL",
            "ROLE_ASSISTANT",
        ]
        assert [m["sequence"] for m in (user, asks, tool, answers)] == ["1", "2", "3", "4"]
        assert asks["toolCalls"][0]["name"] == "query_knowledge"
        assert tool["toolCallId"] == asks["toolCalls"][0]["id"]
        assert "thirty days" in str(answers["text"])
        headings = [c["headingPath"] for c in answers["citations"]]
        assert ["Works manual", "Backups", "How long copies are retained"] in headings
        assert "offline" in json.dumps(answers["metadata"])

    def test_all_of_it_survives_a_kill_of_everything(
        self, installation: Installation, session: dict[str, str], base_id: str
    ) -> None:
        """After SIGKILL to every process, `make run` shows the same and the session goes on."""
        before = installation.call(
            f"{AGENT}/ListMessages", {"sessionId": session["sessionId"]}
        ).message

        assert installation.kill_everything() > 5
        installation.start()

        request = {"sessionId": session["sessionId"]}
        after = installation.call(f"{AGENT}/ListMessages", request).message
        assert before == after
        text = {"sessionId": session["sessionId"], "text": "打印机卡纸了怎么办？"}
        sent = installation.call(f"{GATEWAY}/SendMessage", text).message
        assert sent["sequence"] == "5"
        *_, answer = self.messages(installation, session["sessionId"], after=5, count=3)
        assert "打印机卡纸时" in str(answer["text"])


class TestCommand:
    """The `chatmind` command."""

    def test_kb_add_makes_documents_searchable(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        """A folder becomes a base, and nothing changes the second time."""
        docs = tmp_path / "docs"
        docs.mkdir()
        (docs / "tea.md").write_text("# Tea\n\nGreen tea is brewed at seventy degrees.\n")
        (docs / "notes.txt").write_text("Coffee is ground fresh for every cup.\n")

        first = installation.chatmind("kb", "add", str(docs), "--base", "kitchen", "--json")
        again = installation.chatmind("kb", "add", str(docs), "--base", "kitchen", "--json")
        found = installation.chatmind("kb", "search", "how hot is the tea?", "--base", "kitchen")

        assert first.returncode == 0, first.stderr
        added = [json.loads(line) for line in first.stdout.splitlines()]
        assert {"docs/tea.md", "docs/notes.txt"} == {d["display_name"] for d in added}
        assert [d["version"] for d in added] == [1, 1]
        assert [json.loads(line)["version"] for line in again.stdout.splitlines()] == [1, 1]
        assert "seventy degrees" in found.stdout

    def test_chat_holds_a_conversation(self, installation: Installation) -> None:
        """Two questions typed one after another get an answer each, in one session."""
        done = installation.chatmind(
            "chat", "--agent", "Guide", stdin="What is ChatMind?\nHow do I add documents?\n"
        )

        assert done.returncode == 0, done.stderr
        assert "kb add" in done.stdout
        assert done.stderr.count("query_knowledge") >= 2

    def test_a_second_user_sees_nothing_of_the_first(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        """`chatmind key add` makes a user of their own."""
        made = installation.chatmind("key", "add", "ada")
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()

        bases = installation.call(f"{KNOWLEDGE}/ListKnowledgeBases", {}, key=key).message
        sessions = installation.call(f"{AGENT}/ListSessions", {}, key=key).message

        assert [b["displayName"] for b in bases["knowledgeBases"]] == ["ChatMind handbook"]
        assert sessions == {}

    def test_an_error_is_one_line_and_a_status(self, installation: Installation) -> None:
        """What cannot be done is said on stderr."""
        done = installation.chatmind("kb", "search", "x", "--base", "no such base")

        assert done.returncode == 1
        assert done.stdout == ""
        assert "no knowledge base is called 'no such base'" in done.stderr


class TestStop:
    """The end; runs last."""

    def test_ctrl_c_ends_every_process(self, installation: Installation) -> None:
        """Nothing is left behind, and no data is lost."""
        processes = installation.processes()

        installation.interrupt()

        assert not [p for p in processes if p.is_running() and p.status() != "zombie"]


def first_messages(events: Iterator[JsonObject], count: int) -> Iterator[JsonObject]:
    """The first completed messages among the events of a stream."""
    for event in events:
        if "message" in event:
            yield event["message"]
            count -= 1
            if count == 0:
                return
