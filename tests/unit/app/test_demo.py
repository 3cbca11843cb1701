"""The demo application: the responses of each version, and a shutdown that completes requests."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.app.demo.answers import TAGS, About, DemoAnswer, DemoRequest, about_from, answer
from shoal.app.demo.server import DemoServer, MalformedRequest, parse_head
from shoal.base.websocket import CloseCode, Decoder, Message, Opcode, encode, encode_close
from shoal.testing.waiting import eventually

SRC = Path(__file__).resolve().parents[3] / "src"
LIMIT_S = 30.0
V1 = About()
NONE: Mapping[str, str] = {}


def ask(
    path: str, about: About = V1, *, number: int = 1, draining: bool = False, query: Mapping[str, str] = NONE,
    headers: Mapping[str, str] = NONE, method: str = "GET", body: bytes = b"",
) -> DemoAnswer:  # fmt: skip
    return answer(about, DemoRequest(method, path, query, headers, body), number=number, draining=draining)


def test_the_home_page_shows_the_instance_and_the_headers_of_the_gateway() -> None:
    about = about_from(
        "v1",
        {"SHOAL_APP": "shop", "SHOAL_REGION": "eu", "SHOAL_DEPLOYMENT_ID": "d_1", "SHOAL_INSTANCE_ID": "i_1"},
    )
    made = json.loads(ask("/", about, headers={"x-forwarded-for": "10.0.0.1", "cookie": "secret"}).body)
    assert made == {
        "app": "shop", "version": "v1", "region": "eu", "instance": "i_1", "deployment": "d_1",
        "message": "Hello from Shoal", "headers": {"x-forwarded-for": "10.0.0.1"},
    }  # fmt: skip


def test_browsers_get_a_page_in_which_nothing_is_taken_for_markup() -> None:
    made = ask("/", About(app="<b>"), headers={"accept": "text/html,*/*"})
    assert made.content_type.startswith("text/html")
    assert b"&lt;b&gt;" in made.body and b"<b>" not in made.body


def test_versions_say_different_things() -> None:
    assert ask("/", About("v1")).body != ask("/", About("v2")).body


def test_the_failing_version_fails_three_of_ten() -> None:
    codes = [ask("/", about_from("v2-errors", {}), number=number).status for number in range(1, 1001)]
    assert codes.count(500) == 300 and codes.count(200) == 700


def test_variables_say_how_many_answers_fail_and_how_late_they_are() -> None:
    about = about_from("v2", {"FAIL_PERCENT": "5", "DELAY_MS": "20"})
    codes = [ask("/", about, number=number).status for number in range(1, 1001)]
    assert codes.count(500) == 50
    assert ask("/", about, number=1).delay_s == 0.02 and ask("/health", about, number=100).status == 200


def test_the_slow_version_is_slow_and_its_health_is_not() -> None:
    assert ask("/", about_from("v2-slow", {})).delay_s == 0.3
    assert ask("/slow", about_from("v2-slow", {}), query={"ms": "200"}).delay_s == 0.5
    assert ask("/health", about_from("v2-slow", {})).delay_s == 0


@pytest.mark.parametrize("tag", TAGS)
def test_health_is_good_until_it_drains(tag: str) -> None:
    assert {ask("/health", About(tag), number=number).status for number in range(10)} == {200}
    assert ask("/health", About(tag), draining=True).status == 503
    assert ask("/livez", About(tag), draining=True).status == 200


@pytest.mark.parametrize(("path", "status"), [("/status/418", 418), ("/status/99", 400), ("/status/abc", 400),
                                              ("/status/600", 400), ("/nowhere", 404), ("/status/204", 204)])  # fmt: skip
def test_a_status_can_be_asked_for(path: str, status: int) -> None:
    assert ask(path).status == status


def test_numbers_that_make_no_sense_are_taken_for_the_usual() -> None:
    assert ask("/slow", query={"ms": "nan"}).delay_s == 1.0
    assert ask("/slow", query={"ms": "-5"}).delay_s == 1.0
    assert ask("/slow", query={"ms": "1e300"}).delay_s == 300.0
    assert ask("/stream", query={"chunks": "0"}).chunks == 1


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="v3"):
        about_from("v3", {})


def test_an_invalid_request_line_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        parse_head(b"hello\r\n\r\n")


@asynccontextmanager
async def running(about: About = V1) -> AsyncIterator[tuple[DemoServer, int]]:
    server = DemoServer(about)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close(drain_s=0, end_s=1)


async def exchange(port: int, *requests: bytes) -> list[bytes]:
    """Send them all at once on one connection; the answers, each with its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    answers = []
    async with asyncio.timeout(LIMIT_S):
        for _ in requests:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head:
                answers.append(head + await reader.readuntil(b"0\r\n\r\n"))
            else:
                size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                answers.append(head + await reader.readexactly(size))
    writer.close()
    return answers


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with running() as (_, port):
        post = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody"
        chunked = (
            b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        got = await exchange(port, post, b"GET /stream?chunks=3&ms=0 HTTP/1.1\r\n\r\n", chunked)
        assert got[0].endswith(b"\r\n\r\nbody")
        assert got[1].count(b" v1 ") == 3
        assert got[2].endswith(b"\r\n\r\nabcde")


async def test_an_invalid_request_gets_a_400() -> None:
    async with running() as (_, port):
        got = await exchange(port, b"nonsense\r\n\r\n")
        assert got[0].startswith(b"HTTP/1.1 400")
        got = await exchange(port, b"POST /echo HTTP/1.1\r\ncontent-length: many\r\n\r\n")
        assert got[0].startswith(b"HTTP/1.1 400")


async def test_a_websocket_echoes_messages() -> None:
    async with running(About("v2", region="eu")) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(b"0123456789abcdef")
        writer.write(
            b"GET /ws HTTP/1.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: " + key + b"\r\n\r\n"
        )
        async with asyncio.timeout(LIMIT_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            decoder, got = Decoder(server=False), list[Message]()
            writer.write(encode(Opcode.TEXT, b"hello", mask=b"1234") + encode(Opcode.PING, b"p", mask=b"1234"))
            while len(got) < 3:
                got += decoder.feed(await reader.read(1000))
            assert [(one.opcode, one.data) for one in got] == [
                (Opcode.TEXT, b"v2 eu"), (Opcode.TEXT, b"hello"), (Opcode.PONG, b"p"),
            ]  # fmt: skip
            writer.write(encode_close(CloseCode.NORMAL, mask=b"1234"))
            rest = await reader.read()
            assert [one.opcode for one in decoder.feed(rest)] == [Opcode.CLOSE]
        writer.close()


async def test_a_request_in_progress_is_answered_after_close() -> None:
    async with running() as (server, port):
        slow = asyncio.create_task(exchange(port, b"GET /slow?ms=300 HTTP/1.1\r\n\r\n"), name="slow")
        async with asyncio.timeout(LIMIT_S):
            await eventually(lambda: server.under_way == 1)
            await server.close(drain_s=0)
            assert (await slow)[0].startswith(b"HTTP/1.1 200")
            with pytest.raises(OSError):
                await exchange(port, b"GET / HTTP/1.1\r\n\r\n")


async def test_responses_close_the_connection_while_draining() -> None:
    async with running() as (server, port):
        server.draining = True
        got = await exchange(port, b"GET / HTTP/1.1\r\n\r\n")
        assert got[0].startswith(b"HTTP/1.1 200") and b"connection: close" in got[0]


def test_the_program_exits_cleanly_on_sigterm_and_uses_little_memory() -> None:
    environ = {**os.environ, "PYTHONPATH": str(SRC), "PORT": "0", "DRAIN_S": "0", "HOST": "127.0.0.1"}
    command = [sys.executable, "-m", "shoal.app.demo", "v2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("demo v2 listens on 127.0.0.1:")
        status = Path(f"/proc/{program.pid}/status").read_text()
        resident_kib = int(status.partition("VmRSS:")[2].split()[0])
        program.send_signal(signal.SIGTERM)
        assert program.wait(LIMIT_S) == 0
    assert resident_kib < 25 * 1024


def test_the_program_refuses_an_unknown_tag() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shoal.app.demo", "v9"], env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 2 and "v2-errors" in done.stderr


def test_the_program_imports_nothing_slow() -> None:
    code = (
        "import sys, shoal.app.demo.server; print([name for name in sys.modules if name.split('.')[0] in sys.argv[1:]])"
    )
    heavy = ["uvloop", "httptools", "orjson", "msgspec", "grpc", "google", "envoy", "granian", "typer", "httpx", "yaml"]
    done = subprocess.run(
        [sys.executable, "-c", code, *heavy], env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True, text=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
