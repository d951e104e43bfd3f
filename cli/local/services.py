"""The four services on one machine: their addresses and their environments."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.client import KEY_FILE_NAME

_GRPC = {
    "embedding": "127.0.0.1:8053",
    "knowledge": "127.0.0.1:8052",
    "agent": "127.0.0.1:8051",
    "gateway": "127.0.0.1:8050",
}
_HTTP = "127.0.0.1:8080"

_USUAL = {
    # Several processes share few cores; a second BLAS or OpenMP thread in each makes all slower.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    # What the core of grpc would write into the logs is neither JSON nor news.
    "GRPC_VERBOSITY": "NONE",
}


@dataclass(frozen=True, slots=True)
class LocalService:
    """One service to run.

    Attributes:
        name: `embedding`, `knowledge`, `agent` or `gateway`.
        module: what `python -m` would run.
        address: where its gRPC server listens.
        environment: all its environment variables.
    """

    name: str
    module: str
    address: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The addresses and the files of ChatMind on this machine.

    Attributes:
        grpc: the gRPC address of each service by name, in the order they are started.
        http: the gateway's HTTP address.
        data_dir: keys, logs and the database.
    """

    grpc: Mapping[str, str]
    http: str
    data_dir: Path

    @property
    def listening(self) -> Mapping[str, str]:
        """Every address to listen on, by the variable that sets it."""
        own = {f"CHATMIND_{name.upper()}_LISTEN": address for name, address in self.grpc.items()}
        return {**own, "CHATMIND_GATEWAY_HTTP_LISTEN": self.http}

    @property
    def key_file(self) -> Path:
        """The admin's API key."""
        return self.data_dir / KEY_FILE_NAME

    @property
    def identity_dir(self) -> Path:
        """The services' signing keys."""
        return self.data_dir / "identity"

    @property
    def logs(self) -> Path:
        """The folder with a log for each service."""
        return self.data_dir / "logs"


def plan_layout(data_dir: Path, environment: Mapping[str, str] = os.environ) -> Layout:
    """The default addresses, unless CHATMIND_<SERVICE>_LISTEN and the like set others.

    An empty variable counts as unset.
    """
    grpc = {
        name: environment.get(f"CHATMIND_{name.upper()}_LISTEN") or address
        for name, address in _GRPC.items()
    }
    return Layout(grpc, environment.get("CHATMIND_GATEWAY_HTTP_LISTEN") or _HTTP, data_dir)


def plan_services(
    layout: Layout, *, database_url: str, environment: Mapping[str, str] = os.environ
) -> list[LocalService]:
    """The services to run, callees first."""
    told = _told(layout, database_url)
    return [
        LocalService(name, f"services.{name}", address, {**_USUAL, **environment, **told})
        for name, address in layout.grpc.items()
    ]


def _told(layout: Layout, database_url: str) -> dict[str, str]:
    grpc = layout.grpc
    identity = {
        f"CHATMIND_{name.upper()}_IDENTITY_DIR": str(layout.identity_dir / name) for name in grpc
    }
    return {
        **layout.listening,
        **identity,
        "CHATMIND_DATABASE_URL": database_url,
        "CHATMIND_KNOWLEDGE_EMBEDDING_ADDRESS": grpc["embedding"],
        "CHATMIND_AGENT_KNOWLEDGE_ADDRESS": grpc["knowledge"],
        "CHATMIND_GATEWAY_KNOWLEDGE_ADDRESS": grpc["knowledge"],
        "CHATMIND_GATEWAY_AGENT_ADDRESS": grpc["agent"],
        "CHATMIND_GATEWAY_ADMIN_KEY_FILE": str(layout.key_file),
    }
