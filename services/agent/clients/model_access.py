"""How a model's server is reached: by key, account and proxy, as the environment has them. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

OPENAI_HOST: Final = "api.openai.com"

_ACCOUNT: Final = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
"""What tells OpenAI itself, and nobody else, whose bill it is; by the variable that holds it."""


class ModelsFileError(Exception):
    """What is wrong with the configuration of models, as one line for an operator."""


def checked_key(key: str, *, variable: str) -> str:
    """The key in a variable, if it can stand in a header.

    Raises:
        ModelsFileError: it cannot.
    """
    key = key.strip()
    if not (key.isascii() and (key.isprintable() or not key)):
        raise ModelsFileError(f"{variable}: holds a character that no key has")
    return key


def account_headers(base_url: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """What a server is sent besides a key."""
    if urlsplit(base_url).hostname != OPENAI_HOST:
        return {}
    named = {header: environ.get(variable, "") for header, variable in _ACCOUNT.items()}
    return {
        header: checked_key(value, variable=_ACCOUNT[header])
        for header, value in named.items()
        if value
    }


def proxy_of(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that an environment names for an address; None if it is to be asked directly.

    Raises:
        ModelsFileError: the proxy is of a kind that is not supported.
    """
    address = urlsplit(url)
    named = (_variable(environ, f"{each}_proxy") for each in (address.scheme, "all"))
    proxy = next(filter(None, named), "")
    if not proxy or _excepted(address.hostname or "", _variable(environ, "no_proxy")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        raise ModelsFileError("the environment names a proxy that is neither http:// nor https://")
    return proxy


def _excepted(host: str, exceptions: str) -> bool:
    """Whether a host, or a domain that it is in, is among those to be asked directly."""
    for each in exceptions.lower().split(","):
        name = each.strip().lstrip(".").split(":")[0]
        if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
    return False


def _variable(environ: Mapping[str, str], name: str) -> str:
    """Its value, whether it is written small, which goes first, or in capitals."""
    return environ.get(name) or environ.get(name.upper()) or ""
