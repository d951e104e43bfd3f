"""MCP servers and their tools, as ChatMind sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from services.common.text import Json


class McpTransport(Enum):
    """How a server is reached: as a command that is run, or at an address."""

    STDIO = "stdio"
    HTTP = "http"


class McpConsent(Enum):
    """Whether an agent may use a tool; the contract says more of each."""

    APPROVED = "approved"
    NEW = "new"
    CHANGED = "changed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class McpDeclaration:
    """What the operator says of a server.

    Attributes:
        name: lower-case letters, digits and "-", so that the first "_" of a tool's name ends it.
        transport: how it is reached.
        tools: the only ones of its tools that are looked at, by its own names; None for all.
        read_only: those that change nothing; what the server claims of itself does not count.
    """

    name: str
    transport: McpTransport
    tools: frozenset[str] | None = None
    read_only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it; all of this is text that a stranger wrote.

    Attributes:
        name: what the server calls it.
        description: what it says of it.
        input_schema: what it takes, perhaps no valid schema at all.
    """

    name: str
    description: str
    input_schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as agents may be offered it.

    Attributes:
        server: the server's name.
        name: what models call it; unique among all tools there are.
        original_name: what the server calls it.
        description: what the model is told of it.
        input_schema: what models are sent and arguments are checked against.
        digest: of the original name, the description and the schema as the server gives them.
        read_only: the operator has declared that it changes nothing.
        refusal: why it cannot be offered to anybody, for a person; empty where it can.
    """

    server: str
    name: str
    original_name: str
    description: str
    input_schema: Mapping[str, Json]
    digest: str
    read_only: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class McpCatalogue:
    """What a server that answers offers.

    Attributes:
        protocol_version: the revision that was agreed on.
        tools: sorted by name, the refused ones too.
    """

    protocol_version: str
    tools: Sequence[McpTool]


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server as a user is told of it.

    Attributes:
        name: what the operator calls it.
        transport: how it is reached.
        catalogue: what it offers; None where it does not answer.
        error: why it does not, for a person.
        consents: by the digest of each tool, where an agent is asked about that is bound to it.
        bound: whether that agent is.
    """

    name: str
    transport: McpTransport
    catalogue: McpCatalogue | None
    error: str = ""
    consents: Mapping[str, McpConsent] = field(default_factory=dict)
    bound: bool = False
