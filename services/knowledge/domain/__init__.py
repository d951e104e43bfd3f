"""What the knowledge service knows and does, free of transport, drivers and providers."""
