"""Clients of the services behind the gateway."""
