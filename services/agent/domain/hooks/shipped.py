"""The hooks that come with ChatMind."""

from typing import Final

from services.agent.domain.hooks.call_limits import CallLimits
from services.agent.domain.hooks.context_editing import ContextEditing
from services.agent.domain.hooks.hook import Hook, HookConfig
from services.agent.domain.hooks.logging import Logging
from services.agent.domain.hooks.pii.hook import PiiMasking

SHIPPED: Final[tuple[type[Hook[HookConfig]], ...]] = (
    CallLimits,
    ContextEditing,
    Logging,
    PiiMasking,
)
