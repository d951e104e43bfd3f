"""The service as gRPC callers see it."""
