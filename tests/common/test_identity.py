"""Identity tokens."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from services.common.errors import UnauthenticatedError
from services.common.identity import (
    TOKEN_SECONDS,
    Identity,
    IdentityKeyError,
    IdentitySigner,
    IdentityVerifier,
    Role,
    load_signing_key,
    load_trusted_keys,
)

GATEWAY_KEY, AGENT_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
ADA = Identity("acme", "ada", frozenset({Role.MEMBER, Role.ADMIN}))


class FixedClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def signer(clock: FixedClock) -> IdentitySigner:
    return IdentitySigner("gateway", GATEWAY_KEY, audience="agent", clock=clock)


@pytest.fixture
def verifier(clock: FixedClock) -> IdentityVerifier:
    issuers = {"gateway": GATEWAY_KEY.public_key()}
    return IdentityVerifier("agent", issuers, clock=clock)


def signed(clock: FixedClock, key: Ed25519PrivateKey = GATEWAY_KEY, **claims: Any) -> str:
    """A token as a gateway of another release might sign it; a claim of `None` is left out."""
    now = int(clock.now.timestamp())
    usual = {
        "iss": "gateway",
        "aud": "agent",
        "sub": "ada",
        "tenant": "acme",
        "roles": ["member"],
        "iat": now,
        "exp": now + TOKEN_SECONDS,
    }
    merged = {name: value for name, value in (usual | claims).items() if value is not None}
    # By hand: the library would not sign all that a caller might.
    signing = ".".join(
        _encoded(json.dumps(part).encode()) for part in ({"alg": "EdDSA", "typ": "JWT"}, merged)
    )
    return f"{signing}.{_encoded(key.sign(signing.encode()))}"


class TestIdentity:
    @pytest.mark.parametrize(
        ("role", "expected"),
        [(Role.VIEWER, False), (Role.MEMBER, False), (Role.ADMIN, True), (Role.OPERATOR, True)],
    )
    def test_admins_and_operators_change_what_a_tenant_shares(
        self, role: Role, expected: bool
    ) -> None:
        assert Identity("acme", "ada", frozenset({role})).is_admin is expected

    def test_without_more_being_known_somebody_is_a_member(self) -> None:
        assert not Identity("acme", "ada").is_admin


class TestTokens:
    @pytest.mark.parametrize(
        "identity", [ADA, Identity("acme", "bob", frozenset()), Identity("租户", "用户")]
    )
    def test_an_identity_arrives_as_it_was_sent(
        self, signer: IdentitySigner, verifier: IdentityVerifier, identity: Identity
    ) -> None:
        assert verifier.identity(signer.token(identity)) == identity

    def test_a_token_is_used_again_for_a_while_then_made_anew(
        self, signer: IdentitySigner, clock: FixedClock
    ) -> None:
        first = signer.token(ADA)
        clock.move(19)
        assert signer.token(ADA) == first

        clock.move(1)
        assert signer.token(ADA) != first

    def test_identities_do_not_share_tokens(
        self, signer: IdentitySigner, verifier: IdentityVerifier
    ) -> None:
        member = Identity("acme", "ada", frozenset({Role.MEMBER}))
        signer.token(ADA)

        assert verifier.identity(signer.token(member)) == member

    def test_a_clock_set_back_makes_a_new_token(
        self, signer: IdentitySigner, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        signer.token(ADA)
        clock.move(-3600)

        assert verifier.identity(signer.token(ADA)) == ADA

    def test_a_token_lasts_its_time_and_the_clocks_difference(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        token = signed(clock)
        for seconds in (TOKEN_SECONDS - 1, 1, 9):
            clock.move(seconds)
            assert verifier.identity(token).user_id == "ada"

        clock.move(1)
        with pytest.raises(UnauthenticatedError):
            verifier.identity(token)

    def test_a_token_that_was_seen_before_ends_all_the_same(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        token = signed(clock)
        verifier.identity(token)
        clock.move(TOKEN_SECONDS + 10)

        with pytest.raises(UnauthenticatedError):
            verifier.identity(token)

    def test_a_token_from_a_clock_ahead_holds_within_the_difference(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        now = int(clock.now.timestamp())

        assert verifier.identity(signed(clock, iat=now + 10)).user_id == "ada"
        with pytest.raises(UnauthenticatedError):
            verifier.identity(signed(clock, iat=now + 11))

    def test_many_identities_do_not_pile_up(
        self,
        signer: IdentitySigner,
        verifier: IdentityVerifier,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("services.common.identity._MOST_CACHED", 10)
        for number in range(25):
            verifier.identity(signer.token(Identity("acme", str(number))))

        assert 0 < len(signer._minted) <= 10
        assert 0 < len(verifier._verified) <= 10


class TestRoles:
    def test_roles_that_only_a_newer_caller_knows_give_nothing(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        token = signed(clock, roles=["auditor", "admin", 7])

        assert verifier.identity(token).roles == {Role.ADMIN}

    @pytest.mark.parametrize("roles", [None, [], ["auditor"], "admin", {}])
    def test_without_a_known_role_there_is_none(
        self, verifier: IdentityVerifier, clock: FixedClock, roles: Any
    ) -> None:
        assert verifier.identity(signed(clock, roles=roles)).roles == frozenset()


class TestRefused:
    @pytest.mark.parametrize(
        "claims",
        [
            {"aud": "knowledge"},
            {"aud": None},
            {"iss": "agent"},
            {"iss": "stranger"},
            {"tenant": "acme\0"},
            {"sub": "ada\0"},
            {"sub": "ada\ud800"},
            {"iss": None},
            {"sub": None},
            {"sub": ""},
            {"sub": 7},
            {"tenant": None},
            {"tenant": ""},
            {"tenant": 7},
            {"exp": None},
            {"exp": "soon"},
            {"iat": None},
            {"iat": "now"},
            {"roles": 7},
            {"roles": [[]]},
        ],
        ids=str,
    )
    def test_a_claim_that_is_missing_or_wrong(
        self, verifier: IdentityVerifier, clock: FixedClock, claims: dict[str, Any]
    ) -> None:
        token = signed(clock, **claims)

        with pytest.raises(UnauthenticatedError):
            verifier.identity(token)

    def test_a_key_that_is_not_the_issuers(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        with pytest.raises(UnauthenticatedError):
            verifier.identity(signed(clock, key=AGENT_KEY))

    @pytest.mark.parametrize("algorithm", ["none", "HS256"])
    def test_an_algorithm_that_the_caller_picks(
        self, verifier: IdentityVerifier, clock: FixedClock, algorithm: str
    ) -> None:
        """Neither no signature nor one by the public key, which everybody has, is taken."""
        payload = jwt.decode(signed(clock), options={"verify_signature": False})
        secret = GATEWAY_KEY.public_key().public_bytes_raw() if algorithm == "HS256" else ""
        forged = jwt.encode(payload, secret, algorithm=algorithm)

        with pytest.raises(UnauthenticatedError):
            verifier.identity(forged)

    def test_a_payload_swapped_under_the_signature(
        self, verifier: IdentityVerifier, clock: FixedClock
    ) -> None:
        header, _, signature = signed(clock).split(".")
        _, payload, _ = signed(clock, tenant="evil").split(".")

        with pytest.raises(UnauthenticatedError):
            verifier.identity(f"{header}.{payload}.{signature}")

    @pytest.mark.parametrize(
        "token",
        ["", ".", "..", "a.b.c", "中文", "\ud800", "e30.e30.", "x" * 30_000],
    )
    def test_what_is_no_token_at_all(self, verifier: IdentityVerifier, token: str) -> None:
        with pytest.raises(UnauthenticatedError):
            verifier.identity(token)

    @pytest.mark.parametrize("place", ["header", "payload"])
    def test_json_nested_without_end(self, verifier: IdentityVerifier, place: str) -> None:
        deep = _encoded(b"[" * 20_000)
        header = deep if place == "header" else _encoded(json.dumps({"alg": "EdDSA"}).encode())
        payload = deep if place == "payload" else _encoded(b"{}")

        with pytest.raises(UnauthenticatedError):
            verifier.identity(f"{header}.{payload}.AA")

    def test_why_is_not_told(self, verifier: IdentityVerifier, clock: FixedClock) -> None:
        with pytest.raises(UnauthenticatedError) as caught:
            verifier.identity(signed(clock, aud="knowledge"))

        assert caught.value.message == "The identity token is not valid for this service."


class TestKeys:
    def test_a_key_comes_back_from_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "agent.pem"
        path.write_bytes(_private_pem(AGENT_KEY))

        assert load_signing_key(path).public_key() == AGENT_KEY.public_key()

    def test_trusted_keys_are_those_of_the_named_issuers(self, tmp_path: Path) -> None:
        for name, key in (("gateway", GATEWAY_KEY), ("stranger", AGENT_KEY)):
            (tmp_path / f"{name}.pub").write_bytes(_public_pem(key))

        assert load_trusted_keys(tmp_path, frozenset({"gateway"})) == {
            "gateway": GATEWAY_KEY.public_key()
        }

    def test_an_issuer_without_a_key_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            load_trusted_keys(tmp_path, frozenset({"gateway"}))

    def test_keys_of_another_kind_are_refused(self, tmp_path: Path) -> None:
        key = generate_private_key(SECP256R1())
        (tmp_path / "agent.pem").write_bytes(_private_pem(key))
        (tmp_path / "agent.pub").write_bytes(_public_pem(key))

        with pytest.raises(IdentityKeyError, match=r"agent\.pem is not an Ed25519 private key\.$"):
            load_signing_key(tmp_path / "agent.pem")
        with pytest.raises(IdentityKeyError, match=r"agent\.pub is not an Ed25519 public key\.$"):
            load_trusted_keys(tmp_path, frozenset({"agent"}))

    @pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN"])
    def test_files_without_a_key_are_refused(self, tmp_path: Path, content: bytes) -> None:
        for name in ("agent.pem", "agent.pub"):
            (tmp_path / name).write_bytes(content)

        with pytest.raises(IdentityKeyError):
            load_signing_key(tmp_path / "agent.pem")
        with pytest.raises(IdentityKeyError):
            load_trusted_keys(tmp_path, frozenset({"agent"}))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem
