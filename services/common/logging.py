"""Structured logs: one JSON object a line on stderr, with the call's ids from context variables."""

import logging
import sys

import structlog


def configure_logging(service: str, *, level: str = "info") -> None:
    """Sets this process's logging up; to be called once, by `main`.

    Line breaks and control characters are escaped by JSON, so that no value can forge a line.
    """
    numeric = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
