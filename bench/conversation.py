"""The conversation that all contenders hold: a question, four calls of a tool, an answer."""

from typing import Final

STEPS: Final = 5
"""How often the model is asked."""

TOOL: Final = "look_up"
RESULT: Final = "A passage has as many words as it needs to say one thing. " * 10
ANSWER: Final = "It is what the passages say that it is, as far as they go. " * 5


def call_id(step: int) -> str:
    """The id of the call that the model makes in a step, counted from 0."""
    return f"call_{step}"


def arguments(step: int) -> dict[str, str]:
    """Its arguments."""
    return {"what": f"what the handbook says about part {step} of the question"}
