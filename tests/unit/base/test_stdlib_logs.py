"""Guarantees of the records of libraries: they come out like our own."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.base import logs, stdlib_logs
from shoal.base.clock import FakeClock


@pytest.fixture
def stream(clock: FakeClock) -> Iterator[io.StringIO]:
    """What is logged while the records of libraries are captured; their own handlers come back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure(level="info", stream=stream, clock=clock)
    stdlib_logs.capture()
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logs.configure()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_of_a_library_is_one_line_with_its_logger_level_and_message(stream: io.StringIO) -> None:
    logging.getLogger("sqlalchemy.pool").warning("connection %s was\nlost", 7)
    expected = {
        "time": "2024-01-01T00:00:00.000Z", "level": "warning", "logger": "sqlalchemy.pool",
        "message": "connection 7 was\nlost",
    }  # fmt: skip
    assert lines(stream) == [expected]


def test_an_exception_keeps_its_text_and_stack(stream: io.StringIO) -> None:
    try:
        raise OSError("disk full")
    except OSError:
        logging.getLogger("uvicorn.error").exception("failed")
    (line,) = lines(stream)
    assert (line["level"], line["error"]) == ("error", "OSError: disk full")
    assert "test_stdlib_logs.py" in line["stack"]


def test_what_a_task_raised_and_was_never_asked_for_is_logged(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("asyncio"), "handlers", [])  # such an error fails a test otherwise
    loop = asyncio.new_event_loop()
    loop.call_exception_handler({"message": "Task exception was never retrieved", "exception": ValueError("lost")})
    loop.close()
    (line,) = lines(stream)
    assert (line["logger"], line["error"]) == ("asyncio", "ValueError: lost")


def test_a_warning_is_a_line(stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)  # catch_warnings has put Python's own way back
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (line,) = lines(stream)
    assert line["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in line["message"]


def test_statements_and_secrets_stay_out(stream: io.StringIO) -> None:
    logs.configure(level="debug", stream=stream)
    logging.getLogger("sqlalchemy.engine").info("INSERT ... ('hunter2')")
    logging.getLogger("httpx").warning("sent %s", {"x": "Bearer abcdef"})
    (line,) = lines(stream)
    assert "abcdef" not in line["message"]


def test_the_level_of_the_process_holds_for_libraries_too(stream: io.StringIO) -> None:
    logs.configure(level="error", stream=stream)
    logging.getLogger("uvicorn").warning("slow")
    assert lines(stream) == []


def test_a_record_whose_arguments_do_not_fit_is_not_lost(stream: io.StringIO) -> None:
    (ours,) = [each for each in logging.getLogger().handlers if type(each).__module__ == stdlib_logs.__name__]
    ours.handle(logging.makeLogRecord({"name": "x", "levelno": logging.ERROR, "msg": "%d of %d", "args": ("one",)}))
    assert lines(stream)[0]["message"] == "%d of %d"


def test_it_is_captured_once(stream: io.StringIO) -> None:
    stdlib_logs.capture()
    logging.getLogger("x").error("once")
    assert len(lines(stream)) == 1
