"""Runs probes: HTTP, TCP, gRPC, or a command in the container; and HTTP and exec hooks.

Connections go through the runtime, which can reach every pod. Only a probe that names a host connects from the node.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.channel import fetch_over
from shoal.base.http1.errors import AnswerTooLarge, Disconnected, InvalidAnswer
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import request_bytes
from shoal.kube.objects import Obj
from shoal.node.probes.grpc import check as check_grpc
from shoal.node.probes.model import Probe, ProbeAnswer, ProbeResult, port_of
from shoal.node.runtime.connections import SocketConnection, over_tls
from shoal.node.runtime.model import Container, PodConnection, Runtime, RuntimeFailure, SessionOptions

_BODY_LIMIT_BYTES = 10 * 1024
_LIMITS = AnswerLimits(head_bytes=64 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The container to probe."""

    container: Container
    spec: Obj
    address: str  # of the pod, for headers and messages


class Handlers:
    """Runs probes, and HTTP and exec hooks."""

    def __init__(self, runtime: Runtime, *, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def ask(self, probe: Probe, target: Target) -> ProbeAnswer:
        """Run the probe once, within its timeout. Errors are a FAILURE with their message."""
        try:
            async with within(self._clock, probe.timeout_s):
                return await self._ask(probe.handler, target)
        except TimeoutError:
            return ProbeAnswer(ProbeResult.FAILURE, _late(probe))
        except (OSError, ValueError, RuntimeFailure, EOFError) as error:
            return ProbeAnswer(ProbeResult.FAILURE, str(error))

    async def _ask(self, handler: Obj, target: Target) -> ProbeAnswer:
        if handler.get("exec"):
            code, output = await self.run(tuple(handler["exec"].get("command") or ()), target)
            return ProbeAnswer(ProbeResult.SUCCESS if code == 0 else ProbeResult.FAILURE, output)
        if handler.get("httpGet"):
            status, body = await self.fetch(handler["httpGet"], target, agent="kube-probe")
            if 200 <= status < 300:
                return ProbeAnswer(ProbeResult.SUCCESS, body)
            if 300 <= status < 400:
                return ProbeAnswer(ProbeResult.WARNING, f"Probe terminated redirects, Response body: {body}")
            return ProbeAnswer(ProbeResult.FAILURE, f"HTTP probe failed with statuscode: {status}")
        if handler.get("tcpSocket"):
            connection = await self._dial(handler["tcpSocket"], target)
            await connection.close()
            return ProbeAnswer(ProbeResult.SUCCESS)
        if handler.get("grpc"):
            return await self._grpc(handler["grpc"], target)
        raise ValueError("missing probe handler")

    async def run(self, command: tuple[str, ...], target: Target) -> tuple[int, str]:
        """Run a command in the container; returns its exit code and output."""
        session = await self._runtime.exec(target.container.id, command, SessionOptions())
        output = b""
        try:
            async for _stream, data in session.output():
                if len(output) < _BODY_LIMIT_BYTES:
                    output += data
            return await session.wait(), output[:_BODY_LIMIT_BYTES].decode(errors="replace")
        finally:
            await session.close()

    async def fetch(self, action: Obj, target: Target, *, agent: str) -> tuple[int, str]:
        """Send an HTTP GET; returns the status and the beginning of the body. Certificates are not checked."""
        port = port_of(action["port"], target.spec)
        host = action.get("host") or target.address
        connection = await self._dial(action, target)
        try:
            if action.get("scheme") == "HTTPS":
                connection = await over_tls(connection, host)
            path = action.get("path") or "/"
            headers = {"host": f"{host}:{port}", "user-agent": agent, "accept": "*/*"}
            for each in action.get("httpHeaders") or ():
                headers[each["name"].lower()] = each["value"]
            headers["connection"] = "close"
            pairs = [(_as_sent(name), _as_sent(value)) for name, value in headers.items()]
            request = request_bytes("GET", _as_sent(path if path.startswith("/") else f"/{path}"), pairs)
            return await _answer(connection, request, f"{host}:{port}", self._clock)
        finally:
            await connection.close()

    async def _dial(self, action: Obj, target: Target) -> PodConnection:
        port = port_of(action["port"], target.spec)
        if action.get("host"):
            return SocketConnection(*await asyncio.open_connection(action["host"], port))
        return await self._runtime.connect(target.container.sandbox_id, port)

    async def _grpc(self, action: Obj, target: Target) -> ProbeAnswer:
        connection = await self._runtime.connect(target.container.sandbox_id, int(action["port"]))
        try:
            return await check_grpc(connection, action.get("service") or "", f"{target.address}:{action['port']}")
        finally:
            await connection.close()


def _late(probe: Probe) -> str:
    if probe.handler.get("exec"):
        return f"command timed out after {probe.timeout_s:g}s"
    if probe.handler.get("grpc"):
        return f"timeout: health rpc did not complete within {probe.timeout_s:g}s"
    return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


async def _answer(connection: PodConnection, request: bytes, peer: str, clock: Clock) -> tuple[int, str]:
    try:
        reply = await fetch_over(
            connection, request, peer=peer, clock=clock, limits=_LIMITS, enough_bytes=_BODY_LIMIT_BYTES
        )
    except (InvalidAnswer, AnswerTooLarge) as error:
        raise ValueError(f"malformed HTTP response: {error}") from error
    except Disconnected as error:
        raise EOFError("unexpected EOF" if error.head_arrived else "EOF") from error
    return reply.status, reply.body.decode(errors="replace")


def _as_sent(text: str) -> str:
    """Text of a pod's spec, sent as UTF-8."""
    return text.encode().decode("latin-1")
