"""The services' keys on one machine."""

import stat
from pathlib import Path

import pytest

from cli.local.errors import StartError
from cli.local.identity_keys import CALLERS, ensure_identity_keys
from services.common.clock import now
from services.common.errors import UnauthenticatedError
from services.common.identity import (
    Identity,
    IdentitySigner,
    IdentityVerifier,
    load_signing_key,
    load_trusted_keys,
)

ADA = Identity("acme", "ada")
PAIRS = [(caller, callee) for callee, callers in CALLERS.items() for caller in callers]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ensure_identity_keys(tmp_path / "identity")
    return tmp_path / "identity"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def verifier(folder: Path, callee: str) -> IdentityVerifier:
    keys = load_trusted_keys(folder / callee / "trusted", frozenset(CALLERS[callee]))
    return IdentityVerifier(callee, keys, clock=now)


def signer(folder: Path, caller: str, callee: str) -> IdentitySigner:
    key = load_signing_key(folder / caller / f"{caller}.pem")
    return IdentitySigner(caller, key, audience=callee, clock=now)


class TestEnsureIdentityKeys:
    @pytest.mark.parametrize(("caller", "callee"), PAIRS)
    def test_who_may_call_is_believed(self, folder: Path, caller: str, callee: str) -> None:
        token = signer(folder, caller, callee).token(ADA)

        assert verifier(folder, callee).identity(token) == ADA

    def test_who_may_not_call_is_not(self, folder: Path) -> None:
        for callee in CALLERS:
            for caller in set(CALLERS) - set(CALLERS[callee]):
                token = signer(folder, caller, callee).token(ADA)
                with pytest.raises(UnauthenticatedError):
                    verifier(folder, callee).identity(token)

    def test_each_folder_holds_its_own_key_and_those_of_its_callers_alone(
        self, folder: Path
    ) -> None:
        own = {f"{name}/{name}.pem" for name in CALLERS}
        trusted = {f"{callee}/trusted/{caller}.pub" for caller, callee in PAIRS}

        assert set(contents(folder)) == own | trusted

    def test_private_keys_are_their_owners_alone(self, folder: Path) -> None:
        for name in CALLERS:
            for path, mode in ((f"{name}/{name}.pem", 0o600), (name, 0o700)):
                assert stat.S_IMODE((folder / path).stat().st_mode) == mode

    def test_once_made_they_stay(self, folder: Path) -> None:
        before = contents(folder)
        ensure_identity_keys(folder)

        assert contents(folder) == before

    def test_what_is_missing_is_made_and_made_known(self, folder: Path) -> None:
        (folder / "agent/agent.pem").unlink()
        (folder / "knowledge/trusted/gateway.pub").unlink()
        ensure_identity_keys(folder)

        for caller in CALLERS["knowledge"]:
            token = signer(folder, caller, "knowledge").token(ADA)
            assert verifier(folder, "knowledge").identity(token) == ADA

    @pytest.mark.parametrize("content", [b"", b"nonsense"])
    def test_a_file_that_holds_no_key_is_told_and_kept(self, folder: Path, content: bytes) -> None:
        damaged = folder / "agent/agent.pem"
        damaged.write_bytes(content)
        with pytest.raises(StartError) as caught:
            ensure_identity_keys(folder)

        assert str(caught.value) == (f"{damaged} holds no signing key; remove it to get a new one")
        assert damaged.read_bytes() == content
