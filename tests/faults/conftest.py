"""The gateway that faults are tried on is that of its own tests."""

from tests.gateway.conftest import gateway, keys_database

__all__ = ["gateway", "keys_database"]
