"""The last event of a forwarded stream."""

import pytest
from chatmind.agent.v1 import run_service_pb2 as pb

from services.gateway.api.farewell import farewell

PATH = "/chatmind.agent.v1.RunService/WatchSession"


def asked(after: int | None) -> bytes:
    """A request to watch after a sequence."""
    return pb.WatchSessionRequest(session_id="s", after_sequence=after).SerializeToString()


class TestFarewell:
    @pytest.mark.parametrize(
        ("request_", "last", "after"),
        [
            (asked(3), pb.WatchSessionResponse(through_sequence=7).SerializeToString(), 7),
            (asked(3), b"", 3),
            (asked(0), b"", 0),
        ],
        ids=["after the last response", "as asked", "from the start"],
    )
    def test_it_tells_where_to_resume(self, request_: bytes, last: bytes, after: int) -> None:
        going = farewell(PATH, request_, last)

        assert going is not None
        event = pb.WatchSessionResponse.FromString(going)
        assert (after, after) == (event.go_away.resume_after_sequence, event.through_sequence)

    @pytest.mark.parametrize(
        ("path", "request_", "last"),
        [
            (PATH, asked(None), b""),
            (PATH, b"\xff", b""),
            ("/chatmind.knowledge.v1.KnowledgeService/WatchDocument", b"", b""),
        ],
        ids=["unknown place", "no request", "no such event"],
    )
    def test_otherwise_there_is_none(self, path: str, request_: bytes, last: bytes) -> None:
        assert farewell(path, request_, last) is None
