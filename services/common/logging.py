"""Structured logs on stderr: one JSON object a line, with the call's ids from context variables."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from services.common.text import json_line


def configure_logging(service: str, *, level: str = "info") -> None:
    """Set up this process's logging; to be called once, by `main`.

    Warnings and errors of libraries come out in the same form. Line breaks and control characters
    are escaped, so that no value can forge a line.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.processors.JSONRenderer(serializer=json_line)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Log(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    of_libraries.addFilter(_is_worth_logging)
    logging.basicConfig(handlers=[of_libraries], level=logging.WARNING)


class _Log:
    """A file of which lines are missing where they cannot be written.

    A disk that is full, or a reader that is gone, must not fail what is logged.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write what can be written."""
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Have it written now."""
        with suppress(OSError):
            self._file.flush()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether this is anything but grpc's error for a client that left in mid-stream."""
    return not (
        record.name.startswith("grpc._cython")
        and str(record.msg).startswith("ExecuteBatchError raised in core")
    )
