"""Consent to the tools of MCP servers: what was approved is pinned, what changes is not. Pure.

A server can change its tools at any time, so whoever binds it to an agent consents to what they saw
and to nothing else: the digest of each tool then. One that is new or has changed since waits until
somebody who may change the agent approves it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.agent.domain.errors import McpToolChangedError
from services.agent.domain.mcp.models import McpConsent, McpTool
from services.agent.domain.models import McpBinding


def consent_to(tool: McpTool, binding: McpBinding) -> McpConsent:
    """Whether an agent bound to the tool's server may use the tool."""
    if tool.refusal:
        return McpConsent.REFUSED
    approved = binding.approved.get(tool.original_name)
    if approved is None:
        return McpConsent.NEW
    return McpConsent.APPROVED if approved == tool.digest else McpConsent.CHANGED


def consented(server: str, tools: Iterable[McpTool]) -> McpBinding:
    """A new binding, with consent to the tools as they are; refused ones are left out."""
    approved = {tool.original_name: tool.digest for tool in tools if not tool.refusal}
    return McpBinding(server, approved)


def with_approved(
    binding: McpBinding, tools: Sequence[McpTool], digests: Iterable[str]
) -> McpBinding:
    """The binding with these tools approved too; those that the server no longer has drop out.

    Raises:
        McpToolChangedError: a digest is no tool's that can be offered now.
    """
    usable = {tool.digest: tool for tool in tools if not tool.refusal}
    names = {tool.original_name for tool in tools}
    approved = {name: digest for name, digest in binding.approved.items() if name in names}
    for digest in digests:
        if digest not in usable:
            raise McpToolChangedError.of(binding.server, digest)
        approved[usable[digest].original_name] = digest
    return replace(binding, approved=approved)
