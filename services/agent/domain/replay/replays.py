"""Drives stored runs anew against what was recorded, and tells what came out differently."""

from dataclasses import dataclass, replace

from services.agent.domain.errors import AgentDeletedError, RunNotEndedError
from services.agent.domain.models import Agent, ApprovalMode, RunId, ToolApproval
from services.agent.domain.replay.compare import Replay, compare
from services.agent.domain.replay.recorded import EndOfRecordError, NoMemories, RecordedPlans
from services.agent.domain.replay.recording import MakeScratch, Recording, Recordings
from services.agent.domain.run_models import StopReason
from services.agent.domain.stores import AgentStore
from services.agent.domain.turn.loop import Loop
from services.common.errors import NotFoundError
from services.common.identity import Identity


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays runs; each is seen by its user alone.

    Attributes:
        recordings: of the runs.
        agents: as they are now.
        loop: works on runs; here with the record in place of model and tools.
        scratch: where it writes.
    """

    recordings: Recordings
    agents: AgentStore
    loop: Loop
    scratch: MakeScratch

    async def replay(self, identity: Identity, run_id: RunId, *, current: bool = False) -> Replay:
        """What comes of a run that has ended, if the model and the tools say the same again.

        Args:
            identity: the run's user.
            run_id: the run.
            current: take its agent as it is now, not as it was then.

        Raises:
            NotFoundError: the user has no such run.
            RunNotEndedError: it goes on.
            AgentDeletedError: with `current`, the agent is gone.
        """
        recording = await self.recordings.get(identity, run_id)
        if not recording.run.state.final:
            raise RunNotEndedError.of(run_id, recording.run.state.name)
        if recording.agent is None:
            return Replay(recording.run, None, 0, None)
        if current:
            agent, again = await self._now(identity, recording), recording
        else:
            agent, again = _unmetered(recording.agent, recording)
        return await self._drive(recording, _asking_nobody(agent, recording), again)

    async def _now(self, identity: Identity, recording: Recording) -> Agent:
        try:
            return await self.agents.get(identity, recording.run.agent_id)
        except NotFoundError as error:
            raise AgentDeletedError.of(recording.run.agent_id) from error

    async def _drive(self, recording: Recording, agent: Agent, again: Recording) -> Replay:
        scratch = self.scratch(again, agent)
        context, journal = await scratch.begin()
        moment = recording.run.create_time
        plans = RecordedPlans(self.loop.planner, recording)
        loop = replace(self.loop, planner=plans, clock=lambda: moment, memories=NoMemories())
        try:
            await loop.run(context, journal)
            ended = True
        except EndOfRecordError:
            ended = False
        return compare(recording, scratch.outcome(), ended=ended)


def _unmetered(agent: Agent, recording: Recording) -> tuple[Agent, Recording]:
    """Agent and run without a limit of tokens, unless that ended the run.

    How long its questions were is not on record: they may have been cut to what the run learned
    that its model reads.
    """
    if recording.run.stop_reason is StopReason.MAX_TOKENS:
        return agent, recording
    run, limits = recording.run, replace(agent.settings.limits, max_tokens=None)
    if run.parent is not None:
        given = replace(run.parent.limits, max_tokens=None)
        run = replace(run, parent=replace(run.parent, limits=given))
    settings = replace(agent.settings, limits=limits)
    return replace(agent, settings=settings), replace(recording, run=run)


def _asking_nobody(agent: Agent, recording: Recording) -> Agent:
    """The agent as one whose calls wait for nobody: what became of each is on record."""
    names = {call.name for message in recording.messages for call in message.tool_calls}
    never = tuple(ToolApproval(name, ApprovalMode.NEVER) for name in sorted(names))
    return replace(agent, settings=replace(agent.settings, approvals=never))
