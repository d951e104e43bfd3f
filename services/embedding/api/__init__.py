"""The gRPC side of the service."""
