"""The starter content: a base of ChatMind's own documents, and an agent that searches it."""

from pathlib import Path

from chatmind.agent.v1 import agent_pb2, agent_service_pb2
from chatmind.knowledge.v1 import knowledge_base_pb2

from cli.client import CALL_SECONDS, Gateway
from cli.documents import SourceFile, upload
from cli.lookup import agents_called, bases_called, new_base

BASE_NAME = "ChatMind handbook"
AGENT_NAME = "Guide"

_BASE_DESCRIPTION = "What ChatMind is, how it is installed, run, used and built."
_SYSTEM_PROMPT = (
    "You help people use ChatMind. Look the question up in the handbook before you answer, answer "
    "in the language of the question, and mark each statement with the passage it rests on, "
    "such as [1]."
)


def ensure_starter(gateway: Gateway, root: Path) -> None:
    """Create the starter base and agent if they are missing, and bring the documents up to date.

    Args:
        gateway: called with the admin's key.
        root: the folder that holds README.md and docs/.
    """
    base = _ensure_base(gateway)
    for file in handbook_files(root):
        upload(gateway, base.id, file)
    _ensure_agent(gateway, base.id)


def handbook_files(root: Path) -> list[SourceFile]:
    """The documents of the handbook, named by their paths below `root`."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [SourceFile(p, p.relative_to(root).as_posix()) for p in paths if p.is_file()]


def _ensure_base(gateway: Gateway) -> knowledge_base_pb2.KnowledgeBase:
    # The oldest, since anybody in the tenant may share another one of the same name.
    for base in bases_called(gateway, BASE_NAME):
        return base
    wanted = knowledge_base_pb2.KnowledgeBase(
        display_name=BASE_NAME,
        description=_BASE_DESCRIPTION,
        visibility=knowledge_base_pb2.VISIBILITY_TENANT,
    )
    return new_base(gateway, wanted)


def _ensure_agent(gateway: Gateway, base_id: str) -> None:
    if agents_called(gateway, AGENT_NAME):
        return
    agent = agent_pb2.Agent(
        display_name=AGENT_NAME,
        description="Answers questions about ChatMind from its handbook.",
        system_prompt=_SYSTEM_PROMPT,
        knowledge_base_ids=[base_id],
        visibility=agent_pb2.VISIBILITY_TENANT,
    )
    gateway.agents.CreateAgent(
        agent_service_pb2.CreateAgentRequest(agent=agent), timeout=CALL_SECONDS
    )
