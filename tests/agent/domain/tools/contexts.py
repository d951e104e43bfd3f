"""What a tool is told of a call, for tests."""

from services.agent.domain.chat import ToolContext
from services.agent.domain.models import RunId
from tests.agent.turns import IDENTITY, SESSION, Scene, ScriptedModel

CONTEXT = ToolContext(
    identity=IDENTITY,
    agent=Scene(ScriptedModel()).context().agent,
    session_id=SESSION,
    run_id=RunId("r1"),
    call_key="r1:c1",
    next_label=1,
)
