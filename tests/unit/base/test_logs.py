"""Guarantees of the logs."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base import logs
from shoal.base.clock import FakeClock
from shoal.errors import ConfigError


@pytest.fixture
def stream(clock: FakeClock) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", stream=stream, clock=clock)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_logger_message_and_fields(stream: io.StringIO) -> None:
    logs.get_logger("store", shard=1).bind(key="a/b").info("compacted\nnow", revision=17)
    assert lines(stream) == [
        {
            "time": "2024-01-01T00:00:00.000Z",
            "level": "info",
            "logger": "store",
            "message": "compacted\nnow",
            "shard": 1,
            "key": "a/b",
            "revision": 17,
        }
    ]
    assert stream.getvalue().count("\n") == 1


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    log = logs.get_logger("x")
    log.debug("no")
    logs.configure(level="error", stream=stream)
    log.warning("no")
    log.error("yes")
    assert [line["message"] for line in lines(stream)] == ["yes"]


def test_a_bound_field_can_be_read_and_passed_on() -> None:
    assert logs.bound("correlation") == ""
    with logs.correlated(correlation="deploy-7"):
        assert logs.bound("correlation") == "deploy-7"
    assert logs.bound("correlation") == ""


async def test_correlation_fields_follow_a_task_and_end_with_their_block(stream: io.StringIO) -> None:
    log = logs.get_logger("x")

    async def request(n: int) -> None:
        with logs.correlated(request_id=n):
            await asyncio.sleep(0)
            log.info("handled", n=n)
        log.info("after", n=n)

    await asyncio.gather(request(1), request(2))
    assert all(line.get("request_id") == line["n"] for line in lines(stream) if line["message"] == "handled")
    assert all("request_id" not in line for line in lines(stream) if line["message"] == "after")


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "authorization",
        "Authorization",
        "admin_token",
        "password",
        "clientSecret_token",
        "private_key",
        "api_key",
        "set-cookie",
    ],
)
def test_values_under_secret_names_are_never_written(name: str, stream: io.StringIO) -> None:
    logs.get_logger("x", **{name: "hunter2"}).info("m", headers={name: "hunter2"}, items=[{name: "hunter2"}])
    assert "hunter2" not in stream.getvalue()
    assert logs.REDACTED in stream.getvalue()


def test_credentials_inside_texts_are_never_written(stream: io.StringIO) -> None:
    log = logs.get_logger("x")
    log.info("m", header="Authorization: Bearer abc.def-ghi", url="postgresql://me:hunter2@db/x")
    log.error("m", error=ValueError("bad Basic aHVudGVyMg== at redis://:hunter2@r"))
    assert not any(secret in stream.getvalue() for secret in ("abc.def", "hunter2", "aHVudGVyMg"))
    assert "postgresql://me:" in stream.getvalue()


def test_an_error_is_written_with_its_stack(stream: io.StringIO) -> None:
    try:
        raise OSError("disk full")
    except OSError as error:
        logs.get_logger("x").error("write failed", error=error)
    (line,) = lines(stream)
    assert line["error"] == "OSError: disk full"
    assert "test_logs.py" in line["stack"]


@given(
    st.dictionaries(
        st.text(max_size=10), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5), max_size=4
    )
)
def test_any_fields_make_a_line_that_can_be_parsed(fields: dict[str, Any]) -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    logs.get_logger("x").bind(fields=fields).info("m")
    assert json.loads(stream.getvalue())["message"] == "m"


def test_values_json_does_not_know_are_written_as_text(stream: io.StringIO) -> None:
    logs.get_logger("x").info("m", path=FakeClock, raw=b"\xff")
    assert "FakeClock" in lines(stream)[0]["path"]


def test_an_unknown_level_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="log_level is 'loud': choose from debug"):
        logs.configure(level="loud")


def test_a_json_web_token_is_not_written_wherever_it_stands() -> None:
    assert (
        logs.redact("user said eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln, and left") == "user said [redacted], and left"
    )
