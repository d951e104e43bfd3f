"""The process that cuts, by itself."""

import subprocess
import sys

from services.knowledge.clients.cutter_answers import PART_SIZE, Head, Part, answers
from services.knowledge.clients.frames import pack, read
from services.knowledge.domain.ingest.cutting import CutRequest, cut
from services.knowledge.domain.ingest.policy import ChunkPolicy, EmbedField

COMMAND = [sys.executable, "-m", "services.knowledge.clients.cutter_process", str(2 * 1024**3)]


def a_request(sections: int) -> CutRequest:
    """A document of so many sections."""
    content = "\n\n".join(f"# {i}\n\ntext {i}" for i in range(sections)).encode()
    return CutRequest(content, "a.md", "", ChunkPolicy(), EmbedField.TITLE_AND_CONTENT)


class TestMain:
    def test_says_when_it_is_ready_answers_and_ends_with_its_input(self) -> None:
        with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert read(process.stdout, Head) == Head()
            for _ in range(2):
                process.stdin.write(pack(a_request(1)))
                process.stdin.flush()
                assert read(process.stdout, Head) == Head("0", {}, 1)
                assert len(read(process.stdout, Part).pieces) == 1
            process.stdin.close()

            assert process.wait(20) == 0


class TestAnswers:
    def test_a_long_document_comes_in_parts(self) -> None:
        request = a_request(2 * PART_SIZE + 1)
        whole = cut(request)

        head, *parts = answers(request)

        assert isinstance(head, Head)
        assert head.parts == len(parts) == 3
        pieces = [piece for part in parts if isinstance(part, Part) for piece in part.pieces]
        assert list(whole.pieces) == pieces

    def test_a_failure_is_told(self) -> None:
        request = CutRequest(b"\xff", "a.md", "", ChunkPolicy(), EmbedField.TITLE)

        (head,) = answers(request)

        assert isinstance(head, Head)
        assert head.failure.startswith("InvalidEncodingError")
