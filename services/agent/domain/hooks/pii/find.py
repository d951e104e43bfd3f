"""Finds personal data in a text. Pure, and in time that grows with the text alone.

Every pattern begins at few places, and reads a bounded number of characters from each or consumes
what it reads; so there is no text that takes it long.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from services.agent.domain.hooks.pii import checks
from services.agent.domain.hooks.pii.fold import folded


class Kind(Enum):
    """What can be found, the more certain first."""

    API_KEY = "api_key"
    EMAIL = "email"
    IBAN = "iban"
    RESIDENT_ID = "resident_id"
    CARD = "card"
    IP = "ip"
    PHONE = "phone"


@dataclass(frozen=True, slots=True)
class Found:
    """Something found: `text[start:end]`."""

    start: int
    end: int
    kind: Kind


_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic and those that follow them
    r"|[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS
    r"|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}"  # Google
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}"  # Slack, Hugging Face
    r"|cm_[0-9a-f]{32}_[0-9A-Za-z]{49}"  # ChatMind
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JWT
    r")"
)
_BEARER: Final = re.compile(r"(?i:\bbearer) {1,4}([A-Za-z0-9._~+/-]{20,}=*)")
_PEM_BEGIN: Final = re.compile(r"-----BEGIN (?:[A-Z]{1,16} ){0,3}PRIVATE KEY-----")
_PEM_END: Final = "PRIVATE KEY-----"
# Latin, Greek and Cyrillic; Chinese may be the sentence that an address stands in.
_LOCAL: Final = re.compile(r"[A-Za-z0-9._%+'\u00c0-\u024f\u0370-\u052f-]")
_CHINESE_LOCAL: Final = re.compile(r"[\w.-]")
_DOMAIN: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}"
    r"(?:[xX][nN]--[A-Za-z0-9-]{2,59}(?![A-Za-z0-9-])|[A-Za-z]{2,24}(?![A-Za-z]))"
    r"|(?:\w(?:[\w-]{0,62})\.){1,8}(?:中国|中國|公司|网络|網絡|香港|台湾|台灣|рф|[A-Za-z]{2,24}(?![A-Za-z]))"
)
_LONGEST_LOCAL: Final = 64
_IBAN_BEGIN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?=[ -]?[A-Za-z0-9])", re.ASCII)
_RESIDENT_ID: Final = re.compile(
    r"(?<![\d*])[1-9]\d{5}[ -]?(?:18|19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    r"[ -]?\d{3}[\dXx](?![\dA-Za-z])"
)
_CARD: Final = re.compile(
    r"(?<![\d*])(?:\d{13,19}"
    r"|\d{4}([ .-])\d{4}\1\d{4}\1\d{1,7}"
    r"|\d{4}([ -])\d{6}\2\d{4,5})(?!\d)"
)
_IP: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\d|\.\d)"
    r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){1,6}:\d{1,3}(?:\.\d{1,3}){3}(?!\d|\.\d)"
    r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:]))",
    re.ASCII,
)
_PHONE: Final = re.compile(
    r"(?<![\w+])\+\d{1,3}(?:[ .()-]{0,2}\d){6,13}(?!\d)"  # international
    r"|(?<![\d.+*-])(?:86[ -]?)?1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?!\d)"  # Chinese mobile
    r"|(?<![\d.*-])(?:0\d{2,3}-|\(0\d{2,3}\)[ -]?)\d{7,8}(?!\d)"  # Chinese landline
    r"|(?<![\d.*-])(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4}(?![\d-])"  # American
)


def find(text: str, kinds: Collection[Kind]) -> list[Found]:
    """What is in a text, in order, nothing twice; a more certain kind comes first.

    Args:
        text: any text, however long or hostile.
        kinds: what is looked for.
    """
    shown, taken = folded(text), list[Found]()
    for kind in Kind:
        if kind in kinds:
            more = [
                each
                for start, end in _gaps(taken, len(shown.text))
                for each in _in(shown.text, start, end, kind)
            ]
            taken = sorted([*taken, *more], key=lambda found: found.start)
    return [Found(*shown.span(each.start, each.end), each.kind) for each in taken]


def _gaps(taken: Sequence[Found], length: int) -> Iterator[tuple[int, int]]:
    """Where nothing has been found yet."""
    start = 0
    for found in taken:
        if start < found.start:
            yield start, found.start
        start = found.end
    if start < length:
        yield start, length


def _in(text: str, start: int, end: int, kind: Kind) -> Iterator[Found]:
    for found in _FINDERS[kind](text[start:end]):
        yield Found(start + found.start, start + found.end, kind)


def _api_keys(text: str) -> Iterator[Found]:
    spans = [match.span() for match in _KEY.finditer(text)]
    spans += [match.span(1) for match in _BEARER.finditer(text)]
    spans += _private_keys(text)
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            yield Found(start, stop, Kind.API_KEY)
            end = stop


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """From each beginning to its end, or to the end of the text where there is none."""
    place = 0
    while (begin := _PEM_BEGIN.search(text, place)) is not None:
        end = text.find(_PEM_END, begin.end())
        place = len(text) if end < 0 else end + len(_PEM_END)
        yield begin.start(), place


def _emails(text: str) -> Iterator[Found]:
    """Looks around each `@`."""
    done = 0
    place = text.find("@")
    while place >= 0:
        domain = _DOMAIN.match(text, place + 1)
        start = place
        if domain is not None:
            least = max(done, place - _LONGEST_LOCAL)
            local = _LOCAL if _LOCAL.match(text, place - 1) else _CHINESE_LOCAL
            while start > least and local.match(text, start - 1):
                start -= 1
        if domain is not None and start < place:
            done = domain.end()
            yield Found(start, done, Kind.EMAIL)
        place = text.find("@", max(place + 1, done))


def _ibans(text: str) -> Iterator[Found]:
    """Reads as many letters and digits as the country has, over single blanks and hyphens."""
    done = 0
    for match in _IBAN_BEGIN.finditer(text):
        length = checks.IBAN_LENGTHS.get(match[0][:2].upper())
        if length is None or match.start() < done:
            continue
        end = _iban_end(text, match.start(), length)
        if end is not None:
            done = end
            yield Found(match.start(), end, Kind.IBAN)


def _iban_end(text: str, start: int, length: int) -> int | None:
    read: list[str] = []
    place = start
    while len(read) < length and place < len(text):
        each = text[place]
        if each.isascii() and each.isalnum():
            read.append(each.upper())
        elif each not in " -" or text[place - 1] in " -":
            return None
        place += 1
    follows = text[place : place + 1]
    whole = not (follows.isascii() and follows.isalnum()) and checks.iban("".join(read))
    return place if whole else None


def _any(found: str) -> bool:
    return bool(found)


def _checked(
    pattern: re.Pattern[str], kind: Kind, check: Callable[[str], bool]
) -> Callable[[str], Iterator[Found]]:
    """What a pattern finds and a check bears out; behind what fails it, the next place is tried."""

    def finder(text: str) -> Iterator[Found]:
        match = pattern.search(text)
        while match is not None:
            good = check(match[0])
            if good:
                yield Found(match.start(), match.end(), kind)
            match = pattern.search(text, match.end() if good else match.start() + 1)

    return finder


_FINDERS: Final[Mapping[Kind, Callable[[str], Iterator[Found]]]] = {
    Kind.API_KEY: _api_keys,
    Kind.EMAIL: _emails,
    Kind.IBAN: _ibans,
    Kind.RESIDENT_ID: _checked(_RESIDENT_ID, Kind.RESIDENT_ID, checks.resident_id),
    Kind.CARD: _checked(_CARD, Kind.CARD, checks.luhn),
    Kind.IP: _checked(_IP, Kind.IP, checks.ip),
    Kind.PHONE: _checked(_PHONE, Kind.PHONE, _any),
}
