"""The service over gRPC: messages in, one call to the domain, messages out."""
