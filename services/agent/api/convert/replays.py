"""Replays for the wire."""

from chatmind.agent.v1 import replay_pb2

from services.agent.api.convert.runs import from_stop_reason
from services.agent.domain.replay.compare import Replay


def from_replay(value: Replay) -> replay_pb2.Replay:
    """A replay for the wire."""
    told = replay_pb2.Replay(
        run_id=value.run.id,
        identical=value.difference is None,
        compared_messages=value.compared_messages,
        end_driven=value.end is not None,
        recorded_stop_reason=from_stop_reason(value.run.stop_reason),
        replayed_stop_reason=from_stop_reason(value.end),
    )
    if value.difference is not None:
        told.difference.path = value.difference.path
        told.difference.sequence = value.difference.sequence
        told.difference.recorded = value.difference.recorded
        told.difference.replayed = value.difference.replayed
    return told
