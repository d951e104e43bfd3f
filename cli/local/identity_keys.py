"""The services' signing keys on one machine, created on the first start.

Each service gets a folder of its own: its private key, and in `trusted/` the public keys of the
services that may call it. In a cluster the same folders are mounted from secrets.
"""

from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cli.local.errors import StartError
from services.common.identity import IdentityKeyError, load_signing_key
from services.common.private_file import write_private_file

CALLERS = {
    "embedding": ("knowledge",),
    "knowledge": ("gateway", "agent"),
    "agent": ("gateway",),
    "gateway": (),
}
"""Who may call each service."""


def ensure_identity_keys(folder: Path) -> None:
    """Create the keys that are missing; private ones are readable by their owner only.

    Raises:
        StartError: a file that should hold a key holds something else.
    """
    keys = {name: _ensure_private_key(folder / name / f"{name}.pem") for name in CALLERS}
    for name, callers in CALLERS.items():
        _write_trusted(folder / name / "trusted", keys=keys, callers=callers)


def _ensure_private_key(path: Path) -> Ed25519PrivateKey:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        return _read_private_key(path)
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private_file(path, pem)
    return key


def _read_private_key(path: Path) -> Ed25519PrivateKey:
    try:
        return load_signing_key(path)
    except IdentityKeyError as error:
        raise StartError(f"{path} holds no signing key; remove it to get a new one") from error


def _write_trusted(
    folder: Path, *, keys: dict[str, Ed25519PrivateKey], callers: Iterable[str]
) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    for caller in callers:
        pem = (
            keys[caller].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        (folder / f"{caller}.pub").write_bytes(pem)
