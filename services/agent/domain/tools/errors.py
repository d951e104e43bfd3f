"""How a tool tells the model that a call came to nothing, and whether to try again.

ToolError             what the model is told
├── RetryToolError    other arguments may do: a name that is unknown, an expression that is wrong
└── FailedToolError   trying again will not help: there is no such thing, it is not allowed

Whatever else a tool raises is a fault of the tool: it is logged, and the model is told only that.
"""

from typing import ClassVar


class ToolError(Exception):
    """Why a call came to nothing.

    Attributes:
        word: for programs, the error in the result's metadata.
        advice: what the model is told besides.
        message: one sentence for the model; never a path, a secret or the text of a driver.
    """

    word: ClassVar[str]
    advice: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RetryToolError(ToolError):
    """The call may be tried again with other arguments; the message says which would do."""

    word = "retry"
    advice = " Try again with other arguments."


class FailedToolError(ToolError):
    """The call cannot succeed; the message says why."""

    word = "failed"
    advice = ""
