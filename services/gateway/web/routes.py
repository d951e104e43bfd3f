"""The gateway's HTTP routes."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from services.common.clock import Clock
from services.gateway.domain.status import StatusBoard
from services.gateway.web.page import status_page


def routes(board: StatusBoard, *, version: str, clock: Clock) -> list[Route]:
    """The status page, and the checks for load balancers."""

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        status = await board.status()
        return JSONResponse(
            {
                "ready": status.ready,
                "draining": status.draining,
                "components": dict(status.components),
            },
            status_code=HTTPStatus.OK if status.ready else HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def page(_: Request) -> Response:
        status = await board.status()
        return HTMLResponse(status_page(status, version=version, now=clock()))

    return [Route("/healthz", alive), Route("/readyz", ready), Route("/", page)]
