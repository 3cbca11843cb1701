"""A kubelet as the API server sees one: real TLS, real commands of this machine, real TCP behind port-forward."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from shoal.app.pki import KeyPair, Pki
from shoal.base import websocket
from shoal.base.tasks import cancel_all
from shoal.base.websocket import Channel, Decoder, Opcode
from shoal.kube.objects import Obj


def kubelet_tls(server: KeyPair, ca: Path) -> ssl.SSLContext:
    """Demands a client certificate, as kubelets do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass
class FakeKubelet:
    """The requests it got and the answers it gives. ``logs`` has lines by container; ``more`` is sent to followers."""

    logs: dict[str, str] = field(default_factory=dict)
    more: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    summary: Obj = field(default_factory=dict)
    workdir: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)  # method, target
    headers: list[dict[str, str]] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    sessions: int = 0  # under way
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.sessions -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines if line)}
        certificate = writer.get_extra_info("ssl_object").getpeercert()
        self.peers += [value for part in certificate["subject"] for key, value in part if key == "commonName"]
        self.seen.append((method, target))
        self.headers.append(headers)
        url = urlsplit(target)
        query = parse_qs(url.query, keep_blank_values=True)
        match unquote(url.path).strip("/").split("/"):
            case ["containerLogs", _, _, container]:
                copying = asyncio.create_task(self._logs(writer, container, query), name="log")
                gone = asyncio.create_task(reader.read(1), name="gone")
                await asyncio.wait({copying, gone}, return_when=asyncio.FIRST_COMPLETED)
                await cancel_all(copying, gone)
            case ["exec", _, _, _]:
                await self._exec(await self._upgrade(reader, writer, headers), query)
            case ["attach", _, _, _]:
                await self._exec(await self._upgrade(reader, writer, headers), {**query, "command": ["cat"]})
            case ["portForward", _, _]:
                await self._forward(await self._upgrade(reader, writer, headers), query)
            case ["stats", "summary"]:
                await self._answer(writer, 200, json.dumps(self.summary))
            case ["healthz"]:
                await self._answer(writer, 200, "ok")
            case _:
                await self._answer(writer, 404, "404 page not found\n")

    async def _answer(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        body = text.encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
        writer.write(body)
        await writer.drain()

    async def _logs(self, writer: asyncio.StreamWriter, container: str, query: dict[str, list[str]]) -> None:
        if container not in self.logs:
            text = f'container "{container}" in pod "p" is waiting to start: ContainerCreating'
            await self._answer(writer, 400, text)
            return
        lines = self.logs[container].splitlines(keepends=True)
        if tail := query.get("tailLines"):
            lines = lines[-int(tail[0]) :] if int(tail[0]) else []
        text = "".join(lines).encode()
        if limit := query.get("limitBytes"):
            text = text[: int(limit[0])]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        if text:
            writer.write(b"%x\r\n%b\r\n" % (len(text), text))
        if "follow" in query:
            while (piece := await self.more.get()) is not None:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _upgrade(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]
    ) -> Socket:
        chosen = websocket.choose(
            websocket.offered(headers.get("sec-websocket-protocol", "")), (websocket.V5, websocket.V4)
        )
        if chosen is None:
            await self._answer(writer, 403, "unable to upgrade connection: no protocol")
            raise ConnectionError
        accept = websocket.accept_key(headers["sec-websocket-key"])
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n".encode()
        )
        return Socket(reader, writer, chosen)

    async def _exec(self, socket: Socket, query: dict[str, list[str]]) -> None:
        tty = "tty" in query
        if tty:
            ours, theirs = os.openpty()
            process = await asyncio.create_subprocess_exec(
                *query["command"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=self.workdir, start_new_session=True
            )
            os.close(theirs)
            loop = asyncio.get_running_loop()
            output = asyncio.StreamReader()
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(output), os.fdopen(os.dup(ours), "rb", 0)
            )
            copies = [asyncio.create_task(socket.copy(Channel.STDOUT, output))]
            entering = asyncio.create_task(socket.to_fd(ours))
        else:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *query["command"], stdin=pipe if "input" in query else None, stdout=pipe, stderr=pipe, cwd=self.workdir
            )
            assert process.stdout is not None and process.stderr is not None
            copies = [
                asyncio.create_task(socket.copy(Channel.STDOUT, process.stdout)),
                asyncio.create_task(socket.copy(Channel.STDERR, process.stderr)),
            ]
            entering = asyncio.create_task(socket.to_process(process))
            transport = None
        waiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({waiting, entering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if process.returncode is None:
                process.kill()
        await waiting
        if transport is None:
            await asyncio.gather(*copies)
        else:
            await asyncio.wait(copies, timeout=0.3)
            transport.close()
            os.close(ours)
        entering.cancel()
        status = websocket.exit_status(process.returncode or 0)
        await socket.send(Channel.ERROR, websocket.error_message(status, socket.subprotocol))
        await socket.close()

    async def _forward(self, socket: Socket, query: dict[str, list[str]]) -> None:
        port = int(query["port"][0])
        for channel in (0, 1):
            await socket.send(channel, port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await socket.send(1, f"failed to connect to localhost:{port} inside namespace".encode())
            await socket.close()
            return
        copy = asyncio.create_task(socket.copy(0, reader))
        entering = asyncio.create_task(socket.to_tcp(writer))
        await asyncio.wait({copy, entering}, return_when=asyncio.FIRST_COMPLETED)
        if copy.done():
            await socket.close()
        copy.cancel()
        entering.cancel()
        writer.close()


class Socket:
    """The kubelet's end of a WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, subprotocol: str) -> None:
        self._reader, self._writer, self.subprotocol = reader, writer, subprotocol
        self._decoder = Decoder(server=True)
        self._sending = asyncio.Lock()

    async def send(self, channel: int, data: bytes) -> None:
        async with self._sending:
            self._writer.write(websocket.encode_channel(channel, data, self.subprotocol))
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.write(websocket.encode_close())
        with suppress(OSError):
            await self._writer.drain()

    async def copy(self, channel: int, source: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await source.read(32768):
                await self.send(channel, data)

    async def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        while data := await self._reader.read(65536):
            for message in self._decoder.feed(data):
                if message.opcode is Opcode.CLOSE:
                    return
                if message.opcode is Opcode.PING:
                    self._writer.write(websocket.encode(Opcode.PONG, message.data))
                elif message.opcode is not Opcode.PONG:
                    yield websocket.decode_channel(message, self.subprotocol)

    async def to_process(self, process: asyncio.subprocess.Process) -> None:
        async for channel, data in self.messages():
            if channel == Channel.STDIN and process.stdin is not None:
                process.stdin.write(data)
                with suppress(OSError):
                    await process.stdin.drain()
            elif channel == Channel.CLOSE and process.stdin is not None:
                process.stdin.close()

    async def to_fd(self, descriptor: int) -> None:
        async for channel, data in self.messages():
            if channel == Channel.STDIN:
                os.write(descriptor, data)

    async def to_tcp(self, writer: asyncio.StreamWriter) -> None:
        async for channel, data in self.messages():
            if channel == 0 and data:
                writer.write(data)
                await writer.drain()
            elif channel == 0:
                writer.write_eof()


@asynccontextmanager
async def fake_kubelet(pki: Pki, workdir: Path) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet(workdir=str(workdir))
    tls = kubelet_tls(pki.ensure_server(("127.0.0.1",), "kubelet"), pki.ca_cert)
    server = await asyncio.start_server(kubelet.serve, "127.0.0.1", 0, ssl=tls)
    kubelet.port = server.sockets[0].getsockname()[1]
    try:
        yield kubelet
    finally:
        server.close()
