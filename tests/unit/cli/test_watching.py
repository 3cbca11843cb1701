"""Watch mode: terminals, pipes, and streams that reconnect."""

from __future__ import annotations

import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from shoal.cli.contexts import Context
from shoal.cli.rest import RequestRefused, Rest
from shoal.cli.watching import Display, ReconnectingStream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_redrawn_and_a_pipe_gets_only_new_lines() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for out in (pipe, terminal):
        display = Display(out)
        for text in ("A\nb 1\n", "A\nb 1\n", "A\nb 2\n"):
            display.show(text)
    assert pipe.getvalue() == "A\nb 1\nb 2\n"
    assert terminal.getvalue().count("\x1b[2J") == 3


class Streaming(BaseHTTPRequestHandler):
    """Sends one message for each connection and ends, then an error; remembers what was asked."""

    asked: list[str | None] = []
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.asked.append(self.headers["Last-Event-ID"])
        number = len(self.asked)
        kind, data = ("event", f'{{"n": {number}}}') if number < 3 else ("error", '{"code": "X", "message": "over"}')
        body = f": open\n\nid: {number}\nevent: {kind}\ndata: {data}\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_stream_reconnects_after_the_last_message_until_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streaming, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    rest = Rest(Context("x", f"http://127.0.0.1:{server.server_address[1]}", "t"))
    with ReconnectingStream(rest, "/stream", reconnect_s=0.01) as stream:
        assert [stream.next(10.0), stream.next(10.0)] == [{"n": 1}, {"n": 2}]
        with pytest.raises(RequestRefused, match="over"):
            stream.next(10.0)
    server.shutdown()
    server.server_close()
    thread.join()
    assert Streaming.asked == [None, "1", "2"]
