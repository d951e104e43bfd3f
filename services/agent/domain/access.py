"""Who sees and who changes an agent, and who may have a run retried."""

from services.agent.domain.models import Agent, Visibility
from services.agent.domain.run_models import Run
from services.common.errors import PermissionDeniedError
from services.common.identity import Identity


def sees(identity: Identity, agent: Agent) -> bool:
    """Whether a user sees an agent: its owner, or everyone in the tenant it is shared with."""
    shared = agent.settings.visibility is Visibility.TENANT
    return agent.tenant == identity.tenant and (agent.owner_user_id == identity.user_id or shared)


def check_may_change(identity: Identity, agent: Agent) -> None:
    """Let only its owner, and admins where it is shared, change an agent that they see.

    Raises:
        PermissionDeniedError: the user is neither.
    """
    shared = agent.settings.visibility is Visibility.TENANT
    if agent.owner_user_id != identity.user_id and not (shared and identity.is_admin):
        raise PermissionDeniedError("Only its owner and the tenant's admins may change this agent.")


def may_retry(identity: Identity, run: Run) -> bool:
    """Whether a user may have a run retried: its own user, and admins of the tenant."""
    own = run.user_id == identity.user_id
    return run.tenant == identity.tenant and (own or identity.is_admin)
