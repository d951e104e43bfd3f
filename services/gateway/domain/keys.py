"""The format of a key: `cm_<key id>_<secret><checksum>`.

The secret is 256 random bits in 43 characters. Since nobody can guess it, its plain SHA-256 is
stored and no slow hash is needed. The last six characters are the CRC-32 of all before them: they
let mistyped keys be refused, and leaked ones be found, without asking the database.
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
_FORMAT = re.compile(
    rf"(cm_([0-9a-f]{{32}})_[0-9A-Za-z]{{{_SECRET_LENGTH}}})([0-9A-Za-z]{{{_CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True, slots=True)
class Credential:
    """A well-formed key as it came with a call.

    Attributes:
        key_id: the public part.
        digest: the SHA-256 of the whole key.
    """

    key_id: KeyId
    digest: bytes

    def proves(self, digest: bytes) -> bool:
        """Whether this is the key stored with a digest; takes the same time for any digest."""
        return hmac.compare_digest(self.digest, digest)


def key_id_of(identifier: str) -> KeyId:
    """The key id for a UUID: its hexadecimal digits without dashes."""
    return KeyId(identifier.replace("-", ""))


def compose(key_id: KeyId, secret: bytes) -> str:
    """The whole key, to be shown only once.

    Args:
        key_id: the public part.
        secret: `SECRET_BYTES` random bytes.
    """
    body = f"cm_{key_id}_{_encoded(int.from_bytes(secret, 'big'), _SECRET_LENGTH)}"
    return body + _checksum(body)


def digest_of(text: str) -> bytes:
    """The SHA-256 of a whole key, which is stored in its place."""
    return hashlib.sha256(text.encode()).digest()


def parse(text: str) -> Credential | None:
    """The credential in a text; None if it does not have the format of a key."""
    match = _FORMAT.fullmatch(text)
    if match is None or match[3] != _checksum(match[1]):
        return None
    return Credential(KeyId(match[2]), digest_of(text))


def _checksum(body: str) -> str:
    return _encoded(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _encoded(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
