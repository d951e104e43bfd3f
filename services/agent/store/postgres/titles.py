"""Which title a session gets from what is said first in it."""

from services.agent.domain.titles import MASKING_HOOK

_MASKS = f"""agent.hooks @> '[{{"name": "{MASKING_HOOK}"}}]'"""


def title(*, tenant: str, agent: str, plain: str, masked: str) -> str:
    """An expression of SQL that gives a session's title, as `domain.titles.Titles.of` has it.

    Args:
        tenant: whose the agent is, as all these an expression.
        agent: its id.
        plain: the title as it was said.
        masked: the title without personal data.
    """
    return (
        f"(SELECT CASE WHEN {_MASKS} THEN {masked} ELSE {plain} END FROM agent "
        f"WHERE agent.tenant = {tenant} AND agent.id = {agent})"
    )
