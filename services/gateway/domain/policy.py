"""Who may call what: each method needs one scope, roles give scopes, and a key may narrow them.

Methods that are not listed here are not served. A key with the scope ADMIN manages access: it may
grant every scope of the roles it grants, including scopes that it has been narrowed out of itself.
"""

from collections.abc import Iterable, Mapping

from services.common.identity import Role
from services.gateway.domain.errors import ScopeMissingError
from services.gateway.domain.models import ApiKey, Scope

SCOPES_OF_SERVICES: Mapping[str, Mapping[Scope, tuple[str, ...]]] = {
    "chatmind.gateway.v1.GatewayService": {
        Scope.READ: ("StreamMessages",),
        Scope.CHAT: ("SendMessage", "CancelRun"),
    },
    "chatmind.gateway.v1.AccessService": {
        Scope.READ: ("GetIdentity",),
        Scope.ADMIN: ("CreateApiKey", "ListApiKeys", "RevokeApiKey"),
    },
    "chatmind.agent.v1.AgentService": {
        Scope.READ: (
            "GetAgent",
            "ListAgents",
            "GetSession",
            "ListSessions",
            "ListMessages",
            "GetChatMemory",
            "ListTools",
            "ListModels",
            "ListHooks",
            "ListMcpServers",
        ),
        Scope.WRITE: (
            "CreateAgent",
            "UpdateAgent",
            "ApproveMcpTools",
            "DeleteAgent",
            "CreateSession",
            "UpdateSession",
            "DeleteSession",
            "ClearChatMemory",
        ),
        Scope.CHAT: ("CompactSession",),
    },
    "chatmind.agent.v1.RunService": {
        Scope.READ: (
            "GetRun",
            "ListRuns",
            "ListToolCalls",
            "ListApprovals",
            "ReplayRun",
            "WatchSession",
        ),
        Scope.CHAT: ("StartRun", "CancelRun", "RetryRun", "ResolveApproval"),
    },
    "chatmind.knowledge.v1.KnowledgeService": {
        Scope.READ: (
            "GetKnowledgeBase",
            "ListKnowledgeBases",
            "GetDocument",
            "ListDocuments",
            "WatchDocument",
            "ListChunks",
            "PreviewChunks",
            "Search",
        ),
        Scope.WRITE: (
            "CreateKnowledgeBase",
            "UpdateKnowledgeBase",
            "DeleteKnowledgeBase",
            "CreateDocument",
            "UploadDocument",
            "DeleteDocument",
            "ReingestDocument",
        ),
    },
}
"""The methods of each service that clients may call, by the scope they need."""

_SCOPES: Mapping[Role, frozenset[Scope]] = {
    Role.VIEWER: frozenset({Scope.READ}),
    Role.MEMBER: frozenset({Scope.READ, Scope.WRITE, Scope.CHAT}),
    Role.ADMIN: frozenset(Scope),
    Role.OPERATOR: frozenset(Scope),
}
_RANKS: Mapping[Role, int] = {
    Role.VIEWER: 1,
    Role.MEMBER: 2,
    Role.ADMIN: 3,
    Role.OPERATOR: 4,
}
_SCOPE_OF_METHOD: Mapping[str, Scope] = {
    f"/{service}/{method}": scope
    for service, scopes in SCOPES_OF_SERVICES.items()
    for scope, methods in scopes.items()
    for method in methods
}


def scope_of(method: str) -> Scope | None:
    """The scope that a method `/package.Service/Method` needs; None if it is not served."""
    return _SCOPE_OF_METHOD.get(method)


def scopes_of(roles: Iterable[Role]) -> frozenset[Scope]:
    """All scopes that these roles give."""
    return frozenset[Scope]().union(*(_SCOPES[role] for role in roles))


def scopes_of_key(key: ApiKey) -> frozenset[Scope]:
    """The scopes that a key may be used for."""
    given = scopes_of(key.roles)
    return given & key.narrowed_to if key.narrowed_to else given


def require(key: ApiKey, scope: Scope) -> None:
    """Check that a key may be used for a scope.

    Raises:
        ScopeMissingError: it may not.
    """
    if scope not in scopes_of_key(key):
        raise ScopeMissingError(
            f"This needs the scope {scope.name}, which the key does not have.", scope=scope.name
        )


def rank(roles: Iterable[Role]) -> int:
    """The rank of the highest of these roles; 0 if there are none."""
    return max((_RANKS[role] for role in roles), default=0)
