"""The HTTP side of the gateway: health checks and the status page."""
