"""Turns what a server lists into tools that agents may be offered, or says why one cannot be. Pure.

One odd tool never costs the others: it is refused, and they go on.
"""

import hashlib
import json
from collections.abc import Container, Sequence
from typing import Final

from services.agent.domain.mcp.models import ListedTool, McpDeclaration, McpTool
from services.agent.domain.mcp.names import offered_name
from services.agent.domain.mcp.schemas import UnusableSchemaError, usable_schema
from services.agent.domain.mcp.text import visible
from services.common.text import Json, shortened

MAX_TOOLS: Final = 128
"""How many of a server's tools are looked at."""

MAX_TOOL_NAME_BYTES: Final = 128
MAX_DESCRIPTION_BYTES: Final = 8192


def offered_tools(
    declaration: McpDeclaration, listed: Sequence[ListedTool], *, taken: Container[str]
) -> list[McpTool]:
    """A server's tools, sorted by name, those that cannot be offered with the reason.

    Args:
        declaration: of the server.
        listed: as it lists them; those beyond `MAX_TOOLS`, and any whose name came before, are
            left out.
        taken: names of tools that no server's may have.
    """
    wanted = [
        tool for tool in listed if declaration.tools is None or tool.name in declaration.tools
    ]
    tools: dict[str, McpTool] = {}
    for each in wanted[:MAX_TOOLS]:
        tool = _offered(declaration, each, taken)
        tools.setdefault(tool.name, tool)
    return [tools[name] for name in sorted(tools)]


def digest_of(tool: ListedTool) -> str:
    """What a tool is recognised by: any change in it gives another digest."""
    content = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _offered(declaration: McpDeclaration, listed: ListedTool, taken: Container[str]) -> McpTool:
    schema: dict[str, Json] = {}
    refusal = _unfit(listed)
    try:
        schema = usable_schema(listed.input_schema)
    except UnusableSchemaError as error:
        refusal = refusal or str(error)
    return McpTool(
        server=declaration.name,
        name=offered_name(declaration.name, listed.name, taken=taken),
        original_name=visible(shortened(listed.name, MAX_TOOL_NAME_BYTES)),
        description=visible(shortened(listed.description, MAX_DESCRIPTION_BYTES)),
        input_schema=schema,
        digest=digest_of(listed),
        read_only=listed.name in declaration.read_only,
        refusal=refusal,
    )


def _unfit(listed: ListedTool) -> str:
    if listed.name != visible(shortened(listed.name, MAX_TOOL_NAME_BYTES)) or not listed.name:
        return f"its name is empty, over {MAX_TOOL_NAME_BYTES} bytes or has invisible characters"
    if len(listed.description.encode("utf-8", "replace")) > MAX_DESCRIPTION_BYTES:
        return f"its description is over {MAX_DESCRIPTION_BYTES} bytes"
    return ""
