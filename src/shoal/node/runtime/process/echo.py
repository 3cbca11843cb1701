"""The program of the image ``shoal/echo``: a small HTTP server that returns the request, for examples.

It listens on ``$HOST:$PORT``. ``/healthz`` returns ok, ``/hostname`` the pod's name, ``/status/503`` that status code,
and any other path the request as text. It runs without the rest of Shoal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

_LIMIT_BYTES = 1 << 20
_OFFSET = 8000  # added to a port that only root may bind


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            method, path, version = (*lines[0].split(" "), "", "")[:3]
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in lines[1:])
            }
            size = int(headers.get("content-length") or 0)
            body = await reader.readexactly(min(size, _LIMIT_BYTES))
            keep = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"
            code, text = _answer(method, path, head, body)
            print(f"{method} {path} {code}", flush=True)
            connection = "keep-alive" if keep else "close"
            start = f"HTTP/1.1 {code} Answer\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
            writer.write(f"{start}Connection: {connection}\r\n\r\n".encode() + (b"" if method == "HEAD" else text))
            await writer.drain()
            if not keep:
                return
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        return
    finally:
        writer.close()


def _answer(method: str, path: str, head: bytes, body: bytes) -> tuple[int, bytes]:
    plain = path.partition("?")[0]
    if plain in ("/healthz", "/readyz", "/livez"):
        return 200, b"ok\n"
    if plain == "/hostname":
        return 200, os.environ.get("HOSTNAME", socket.gethostname()).encode() + b"\n"
    code = plain.removeprefix("/status/")
    if plain.startswith("/status/") and code.isdigit() and 200 <= int(code) < 600:
        return int(code), f"status {code}\n".encode()
    about = f"pod {os.environ.get('HOSTNAME', '')} at {os.environ.get('HOST', '')}\n".encode()
    return 200, about + head.rstrip(b"\r\n") + b"\n\n" + body


async def main() -> None:
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8080"))
    try:
        server = await asyncio.start_server(_serve, host, port)
    except PermissionError:
        server = await asyncio.start_server(_serve, host, port + _OFFSET)
    address = server.sockets[0].getsockname()
    print(f"listening on {address[0]}:{address[1]}", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    server.close()
    sys.exit(0)


if __name__ == "__main__":
    asyncio.run(main())
