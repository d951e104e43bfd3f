"""The log of a process, which is the whole process's."""

import json
import os
import subprocess
import sys

_PROGRAM = """
import logging
import structlog
from services.common.logging import configure_logging

configure_logging("agent", level="{level}")
{body}
"""


def logged(body: str, *, level: str = "info") -> list[dict[str, str]]:
    """The lines that a process with this body logs."""
    program = _PROGRAM.format(body=body, level=level)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout == b""
    return [json.loads(line) for line in ended.stderr.decode().splitlines()]


class TestConfigureLogging:
    def test_a_line_says_when_who_what(self) -> None:
        (line,) = logged("structlog.get_logger('x').info('serving', port=1)")

        assert line.pop("timestamp").endswith("Z")
        assert line == {"event": "serving", "port": 1, "service": "agent", "level": "info"}

    def test_the_ids_of_the_call_come_along(self) -> None:
        (line,) = logged(
            "structlog.contextvars.bind_contextvars(request_id='r1')\n"
            "structlog.get_logger('x').info('done')"
        )

        assert line["request_id"] == "r1"

    def test_below_the_level_nothing_is_said(self) -> None:
        lines = logged(
            "log = structlog.get_logger('x')\nlog.info('no')\nlog.warning('yes')", level="warning"
        )

        assert [line["event"] for line in lines] == ["yes"]

    def test_no_value_can_forge_a_line_or_reach_the_terminal(self) -> None:
        value = "a\n{}\r\u2028\x85\x1b[2J\x9b2J\ud800"
        (line,) = logged(f"structlog.get_logger('x').info('got', value={value!r})")

        assert line["value"] == value

    def test_a_log_that_cannot_be_written_fails_nothing(self) -> None:
        body = "for _ in range(1000): structlog.get_logger('x').error('lost')\nprint('still here')"
        nobody_reads, log = os.pipe()
        os.close(nobody_reads)
        try:
            ended = subprocess.run(
                [sys.executable, "-c", _PROGRAM.format(body=body, level="info")],
                stdout=subprocess.PIPE,
                stderr=log,
                check=False,
            )
        finally:
            os.close(log)

        assert ended.stdout == b"still here\n"

    def test_libraries_log_in_the_same_form_from_warnings_on(self) -> None:
        lines = logged(
            "logging.getLogger('lib').warning('two\\n%s', 'lines')\n"
            "logging.getLogger('lib').info('chatter')"
        )

        assert [(line["logger"], line["event"]) for line in lines] == [("lib", "two\nlines")]
        assert lines[0]["service"] == "agent"

    def test_a_traceback_is_a_value(self) -> None:
        lines = logged(
            "for log in (structlog.get_logger('x'), logging.getLogger('lib')):\n"
            "    try:\n"
            "        1 / 0\n"
            "    except ZeroDivisionError:\n"
            "        log.exception('failed')\n"
        )

        assert [line["event"] for line in lines] == ["failed"] * 2
        assert all("ZeroDivisionError" in line["exception"] for line in lines)

    def test_a_client_that_left_a_stream_is_no_error(self) -> None:
        lines = logged(
            "log = logging.getLogger('grpc._cython.cygrpc')\n"
            "log.error('ExecuteBatchError raised in core by servicer method [%s]', '/a/b')\n"
            "log.error('Unexpected')\n"
        )

        assert [line["event"] for line in lines] == ["Unexpected"]
