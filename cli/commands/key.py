"""`chatmind key`: manages API keys."""

import time
from typing import Annotated

import typer
from chatmind.gateway.v1 import access_pb2, access_service_pb2

from cli.app import remote
from cli.client import CALL_SECONDS, Gateway, listed
from cli.output import Output, word

app = typer.Typer(help="API keys.", no_args_is_help=True)

_ROLES = ("viewer", "member", "admin", "operator")


@app.command("add")
@remote
def add_key(
    gateway: Gateway,
    output: Output,
    user: Annotated[str, typer.Argument(help="The user its calls act as.")],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help=f"{', '.join(_ROLES)}; repeatable; member if none."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant; empty means your own.")] = "",
    name: Annotated[str, typer.Option("--name", help="What the key is for.")] = "",
) -> None:
    """Create a key and print it, this once."""
    roles = [_role(each) for each in role or ()]
    request = access_service_pb2.CreateApiKeyRequest(
        display_name=name, tenant=tenant, user_id=user, roles=roles
    )
    created = gateway.access.CreateApiKey(request, timeout=CALL_SECONDS)
    output.message(created, text=created.secret)


@app.command("list")
@remote
def list_keys(gateway: Gateway, output: Output) -> None:
    """List the keys; secrets are never shown again."""
    keys = list(
        listed(
            gateway.access.ListApiKeys,
            access_service_pb2.ListApiKeysRequest(),
            lambda page: page.api_keys,
        )
    )
    output.table(
        keys,
        columns=("ID", "TENANT", "USER", "ROLES", "STATE", "NAME"),
        rows=((k.id, k.tenant, k.user_id, _roles(k), _state(k), k.display_name) for k in keys),
    )


@app.command("revoke")
@remote
def revoke_key(
    gateway: Gateway,
    output: Output,
    key_id: Annotated[str, typer.Argument(help="The key, by its id.")],
) -> None:
    """Revoke a key."""
    request = access_service_pb2.RevokeApiKeyRequest(api_key_id=key_id)
    revoked = gateway.access.RevokeApiKey(request, timeout=CALL_SECONDS).api_key
    output.message(revoked, text=f"revoked {revoked.id}")


def _role(name: str) -> access_pb2.Role.ValueType:
    if name.lower() not in _ROLES:
        raise typer.BadParameter(f"must be one of {', '.join(_ROLES)}", param_hint="--role")
    return access_pb2.Role.Value(f"ROLE_{name.upper()}")


def _roles(key: access_pb2.ApiKey) -> str:
    return ", ".join(word(access_pb2.Role.Name, role, prefix="ROLE_") for role in key.roles)


def _state(key: access_pb2.ApiKey) -> str:
    if key.HasField("revoke_time"):
        return "revoked"
    expired = key.HasField("expire_time") and key.expire_time.ToSeconds() <= time.time()
    return "expired" if expired else "valid"
