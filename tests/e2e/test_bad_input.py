"""What is wrong is refused with the right status and a name, and hurts nobody else."""

import base64
import json
import uuid
from collections.abc import Mapping

import pytest

from tests.e2e.installation import Answer, Installation
from tests.e2e.test_first_steps import AGENT, GATEWAY, KNOWLEDGE, RUN, add_document, create_base

pytestmark = pytest.mark.timeout(300)

INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED = 3, 5, 8
NOBODY = str(uuid.UUID(int=7 << 76 | 2 << 62))

UNKNOWN_IDS = {
    f"{KNOWLEDGE}/GetKnowledgeBase": {"knowledgeBaseId": NOBODY},
    f"{KNOWLEDGE}/ListDocuments": {"knowledgeBaseId": NOBODY},
    f"{KNOWLEDGE}/CreateDocument": {"knowledgeBaseId": NOBODY, "displayName": "a.md"},
    f"{KNOWLEDGE}/GetDocument": {"documentId": NOBODY},
    f"{KNOWLEDGE}/WatchDocument": {"documentId": NOBODY},
    f"{KNOWLEDGE}/DeleteDocument": {"documentId": NOBODY},
    f"{KNOWLEDGE}/Search": {"knowledgeBaseIds": [NOBODY], "query": "x"},
    f"{AGENT}/GetAgent": {"agentId": NOBODY},
    f"{AGENT}/CreateSession": {"session": {"agentId": NOBODY}},
    f"{AGENT}/ListMessages": {"sessionId": NOBODY},
    f"{RUN}/GetRun": {"runId": NOBODY},
    f"{GATEWAY}/SendMessage": {"sessionId": NOBODY, "text": "x"},
    f"{GATEWAY}/StreamMessages": {"sessionId": NOBODY},
    f"{GATEWAY}/CancelRun": {"runId": NOBODY},
}

WRONG_FIELDS = {
    "an id that is none": (f"{AGENT}/GetAgent", {"agentId": "seven"}, "agent_id"),
    "no name": (f"{KNOWLEDGE}/CreateKnowledgeBase", {"knowledgeBase": {}}, "display_name"),
    "a name too long": (
        f"{KNOWLEDGE}/CreateKnowledgeBase",
        {"knowledgeBase": {"displayName": "é" * 101}},
        "display_name",
    ),
    "no text": (f"{GATEWAY}/SendMessage", {"agentId": NOBODY, "text": ""}, "text"),
    "no step": (
        f"{AGENT}/CreateAgent",
        {"agent": {"displayName": "a", "limits": {"maxSteps": 0}}},
        "max_steps",
    ),
    "an unknown model": (
        f"{AGENT}/CreateAgent",
        {"agent": {"displayName": "a", "model": "no-such-model"}},
        "agent.model",
    ),
    "an unknown tool": (
        f"{AGENT}/CreateAgent",
        {"agent": {"displayName": "a", "tools": ["no_such_tool"]}},
        "agent.tools",
    ),
    "another's page token": (f"{AGENT}/ListAgents", {"pageToken": "bm9uZQ=="}, "page_token"),
}


@pytest.fixture(scope="module")
def base_id(installation: Installation) -> str:
    """A base for odd files."""
    return create_base(installation, "odd files")


def said(answer: Answer) -> str:
    """All that an error says, its details unpacked."""
    details = answer.error.get("details", [])
    assert isinstance(details, list)
    raw = [base64.b64decode(d["value"] + "==").decode("utf-8", "replace") for d in details]
    return json.dumps(answer.error, ensure_ascii=False) + "".join(raw)


class TestUnknownIds:
    """An id nobody has."""

    @pytest.mark.parametrize("method", UNKNOWN_IDS)
    def test_is_not_found(self, installation: Installation, method: str) -> None:
        """Every method says so, and nothing more."""
        answer = installation.call(method, UNKNOWN_IDS[method])

        assert answer.status == NOT_FOUND
        assert "NOT_FOUND" in said(answer)


class TestWrongFields:
    """Values that break the rules of the contract."""

    @pytest.mark.parametrize("case", WRONG_FIELDS)
    def test_the_field_is_named(self, installation: Installation, case: str) -> None:
        """INVALID_ARGUMENT names the field."""
        method, request, field = WRONG_FIELDS[case]

        answer = installation.call(method, request)

        assert answer.status == INVALID_ARGUMENT
        assert field in said(answer)


class TestDocuments:
    """Files that are no ordinary Markdown."""

    def documents(self, installation: Installation, base_id: str) -> int:
        """How many documents the base holds."""
        request = {"knowledgeBaseId": base_id}
        base = installation.call(f"{KNOWLEDGE}/GetKnowledgeBase", request).message
        return int(base["knowledgeBase"].get("documentCount", 0))

    def upload(self, installation: Installation, base_id: str, **fields: str | bytes) -> Answer:
        """A document as described."""
        request: Mapping[str, object] = {
            "knowledgeBaseId": base_id,
            **{
                name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for name, value in fields.items()
            },
        }
        return installation.call(f"{KNOWLEDGE}/CreateDocument", request)

    def test_bytes_that_are_no_text_are_refused_with_their_place(
        self, installation: Installation, base_id: str
    ) -> None:
        """Not UTF-8: the field, the file and the offset are told, and nothing is stored."""
        before = self.documents(installation, base_id)

        answer = self.upload(
            installation, base_id, displayName="menu.md", content=b"# Caf\xe9 menu\n"
        )

        assert answer.status == INVALID_ARGUMENT
        assert all(word in said(answer) for word in ("INVALID_ENCODING", "menu.md", "5"))
        assert self.documents(installation, base_id) == before

    def test_another_kind_of_file_is_refused(
        self, installation: Installation, base_id: str
    ) -> None:
        """A media type that cannot be read is named."""
        answer = self.upload(
            installation,
            base_id,
            displayName="a.pdf",
            mediaType="application/pdf",
            content=b"%PDF",
        )

        assert answer.status == INVALID_ARGUMENT
        assert "UNSUPPORTED_MEDIA_TYPE" in said(answer)

    @pytest.mark.parametrize(
        ("name", "content", "least_chunks"),
        [
            ("empty.md", b"", 0),
            ("blank.md", b"\n \n\n", 0),
            ("nul.md", b"# Ti\x00tle\n\nbe\x00fore\n", 1),
            ("headings.md", b"# a\n" * 100_000, 1),
            ("lists.md", b"".join(b"  " * n + b"- x\n" for n in range(300)), 1),
            ("quotes.md", b">" * 10_000 + b" deep\n", 1),
            ("brackets.md", b"[" * 100_000 + b"\n", 1),
        ],
    )
    def test_odd_but_honest_files_become_ready(
        self,
        installation: Installation,
        base_id: str,
        name: str,
        content: bytes,
        least_chunks: int,
    ) -> None:
        """None of them fails, hangs or hurts the others."""
        document = add_document(installation, base_id, name, content)

        assert document["state"] == "STATE_READY", document
        assert document.get("chunksTotal", 0) >= least_chunks

    def test_ten_megabytes_pass_and_more_than_the_limit_does_not(
        self, installation: Installation, base_id: str
    ) -> None:
        """A large document crosses every hop; one over the limit is refused clearly."""
        line = b"The quick brown fox jumps over the lazy dog while nobody is looking at it.\n"
        section = b"# Section\n\n" + line * 1300
        document = self.upload(
            installation, base_id, displayName="large.md", content=section * 105
        ).message["document"]

        over = self.upload(installation, base_id, displayName="over.md", content=b"x" * 17_000_000)

        assert int(document["sizeBytes"]) > 10_000_000
        assert over.status in {INVALID_ARGUMENT, RESOURCE_EXHAUSTED}
        assert self.upload(installation, base_id, displayName="ok.md", content=b"ok").status == 0


class TestNul:
    """U+0000, which PostgreSQL cannot keep."""

    def test_reads_as_the_replacement_character_everywhere(
        self, installation: Installation
    ) -> None:
        """In names, titles and messages alike."""
        agent = {"displayName": "a\0b", "systemPrompt": "x\0y"}
        created = installation.call(f"{AGENT}/CreateAgent", {"agent": agent}).message["agent"]
        sent = installation.call(
            f"{GATEWAY}/SendMessage",
            {"agentId": created["id"], "text": "be\0fore"},
        ).message
        request = {"sessionId": sent["sessionId"], "pageSize": 1}
        listed = installation.call(f"{AGENT}/ListMessages", request).message["messages"]

        assert created["displayName"] == "a\ufffdb"
        assert listed[0]["text"] == "be\ufffdfore"
