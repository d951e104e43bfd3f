"""What a key looks like: `cm_<key id>_<secret and checksum>`.

The secret is 256 random bits in 43 characters; nobody can guess it, so its plain SHA-256 is kept
and no slow hash is needed. Six more characters are the CRC-32 of all before them: they tell a
mistyped key, and a key found by a scanner, from any other text without asking the database.
"""

import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass

from services.gateway.domain.models import KeyId

SECRET_BYTES = 32

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH, _CHECKSUM_LENGTH = 43, 6
_FORM = re.compile(rf"(cm_([0-9a-f]{{32}})_[0-9A-Za-z]{{{_SECRET_LENGTH}}})([0-9A-Za-z]{{6}})")


@dataclass(frozen=True, slots=True)
class Credential:
    """A well-formed key as it came with a call.

    Attributes:
        key_id: the public part.
        digest: the SHA-256 of the whole.
    """

    key_id: KeyId
    digest: bytes

    def proves(self, digest: bytes) -> bool:
        """Whether it is the key that was stored with this digest; takes the same time for any."""
        return hmac.compare_digest(self.digest, digest)


def key_id_of(identifier: str) -> KeyId:
    """The key id of a UUID: the same without its dashes."""
    return KeyId(identifier.replace("-", ""))


def compose(key_id: KeyId, secret: bytes) -> str:
    """The whole key, to be shown once.

    Args:
        key_id: the public part.
        secret: `SECRET_BYTES` random bytes.
    """
    body = f"cm_{key_id}_{_encoded(int.from_bytes(secret, 'big'), _SECRET_LENGTH)}"
    return body + _checksum(body)


def digest_of(text: str) -> bytes:
    """What is kept of a whole key."""
    return hashlib.sha256(text.encode()).digest()


def parse(text: str) -> Credential | None:
    """The credential that a text holds; nothing where it has not the form of a key."""
    form = _FORM.fullmatch(text)
    if form is None or form[3] != _checksum(form[1]):
        return None
    return Credential(KeyId(form[2]), digest_of(text))


def _checksum(body: str) -> str:
    return _encoded(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _encoded(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
