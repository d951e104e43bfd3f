"""Reads addresses of pages, once and strictly, and tells whether the operator allows them. Pure.

What is read here is what is resolved, connected to and asked for, so that no two readers can
understand one address differently. Everything unusual is refused: users and passwords, hosts that
are no plain names, backslashes, blanks and control characters.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import quote

Scheme: TypeAlias = Literal["https", "http"]

MAX_URL_CHARS: Final = 2000
PORTS: Final[dict[Scheme, int]] = {"https": 443, "http": 80}

_LABEL = "(?!-)[a-z0-9-]{1,63}(?<!-)"
# The last label begins with a letter, so that no number in any spelling is a name.
_NAME = rf"(?=[^:/?]{{1,253}}(?:[:/?]|$))(?:{_LABEL}\.)*(?=[a-z]){_LABEL}"
_URL = re.compile(rf"(https?)://({_NAME})(?::([0-9]{{1,5}}))?((?:/[^?]*)?(?:\?.*)?)", re.ASCII)
_TAIL = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]|]|%[0-9A-Fa-f]{2}|[^\x00-\xa0\s])*")
_RULE = re.compile(rf"(?:(https?)://)?(\*\.)?({_NAME})(?::([0-9]{{1,5}}))?/?", re.ASCII)
_LAST_PORT: Final = 65_535
# Of what `_TAIL` allows, all that stands for itself on the wire.
_KEPT: Final = "-._~!$&'()*+,;=:@/?%"


class UrlError(Exception):
    """Why an address is not one to fetch, in words for a model."""


@dataclass(frozen=True, slots=True)
class Url:
    """An address of a page.

    Attributes:
        scheme: "https" or "http".
        host: a name in lower case, ASCII.
        port: where its server listens.
        target: path and query, percent-encoded; what is asked for.
    """

    scheme: Scheme
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL: the port only if it is not the usual one."""
        return self.host if self.port == PORTS[self.scheme] else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def read_url(text: str) -> Url:
    """The address that a text is; what follows a "#" is left out.

    Raises:
        UrlError: it is none, or an unusual one.
    """
    if len(text) > MAX_URL_CHARS:
        raise UrlError(f"the address is longer than {MAX_URL_CHARS} characters")
    text = text.partition("#")[0]
    place = text.find("/", text.find("://") + 3)
    ends = place if place >= 0 else len(text)
    found = _URL.fullmatch(_lowered(text[:ends]) + text[ends:])
    if found is None or not _TAIL.fullmatch(found[4]):
        raise UrlError(
            "the address must be like https://example.org/page?query: a plain host name, no user "
            "or password, no blanks or backslashes"
        )
    scheme = cast("Scheme", found[1])
    port = int(found[3] or PORTS[scheme])
    if not 1 <= port <= _LAST_PORT:
        raise UrlError(f"the port must be from 1 to {_LAST_PORT}")
    target = quote(found[4], safe=_KEPT)
    return Url(scheme, found[2], port, target if target.startswith("/") else f"/{target}")


@dataclass(frozen=True, slots=True)
class HostRule:
    """What an operator allows to be fetched.

    Attributes:
        scheme: "https" where none is given.
        host: a name.
        below: the names that end in it are meant, and not itself.
        port: the server's.
    """

    scheme: Scheme
    host: str
    below: bool
    port: int

    def allows(self, url: Url) -> bool:
        """Whether the address is one of those that are meant."""
        if (url.scheme, url.port) != (self.scheme, self.port):
            return False
        return url.host.endswith(f".{self.host}") if self.below else url.host == self.host

    def __str__(self) -> str:
        usual = self.port == PORTS[self.scheme]
        scheme = "" if self.scheme == "https" else f"{self.scheme}://"
        return f"{scheme}{'*.' if self.below else ''}{self.host}{'' if usual else f':{self.port}'}"


def read_rules(text: str) -> tuple[HostRule, ...]:
    """The rules in a list such as "docs.python.org, *.example.org, http://old.example.org:8080".

    Raises:
        ValueError: one of them is no rule; it is named.
    """
    entries = (entry.strip() for entry in text.split(","))
    return tuple(_rule(entry) for entry in entries if entry)


def allowed(url: Url, rules: Iterable[HostRule]) -> bool:
    """Whether one of the rules allows the address."""
    return any(rule.allows(url) for rule in rules)


def _rule(entry: str) -> HostRule:
    found = _RULE.fullmatch(_lowered(entry))
    if found is None:
        raise ValueError(
            f"{entry[:100]!r} must be a host such as docs.python.org, *.example.org, or "
            "http://example.org where plain http is allowed"
        )
    scheme = cast("Scheme", found[1] or "https")
    port = int(found[4] or PORTS[scheme])
    if not 1 <= port <= _LAST_PORT:
        raise ValueError(f"{entry[:100]!r} must have a port from 1 to {_LAST_PORT}")
    if found[2] and "." not in found[3]:
        raise ValueError(f"{entry[:100]!r} would allow far too much")
    return HostRule(scheme, found[3], bool(found[2]), port)


def _lowered(text: str) -> str:
    """ASCII letters in lower case; others, such as the Kelvin sign, stay what they are."""
    return "".join(each.lower() if each.isascii() else each for each in text)
