"""What the service calls: the embedding service, and the processes that cut documents."""
