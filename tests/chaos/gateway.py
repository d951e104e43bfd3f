"""The gateway as the campaigns run it: the real one, and without a safeguard if so asked."""

import os

from services.common.logging import configure_logging
from services.common.process import run_service, until_stopped
from services.common.settings import read_settings
from services.gateway.main import running_gateway
from services.gateway.settings import GatewaySettings
from tests.chaos import mutations


def main() -> None:
    """Run the service that the environment describes."""
    settings = read_settings(GatewaySettings)
    configure_logging("gateway", level=settings.log_level)
    mutations.apply(os.environ)
    run_service("gateway", until_stopped(running_gateway(settings)))


if __name__ == "__main__":
    main()
