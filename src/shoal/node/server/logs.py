"""Serves container logs: selects the container and the part of its log, and formats it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from shoal.base.http1.server import ServerRequest
from shoal.errors import BadRequest, NotFound
from shoal.kube.times import parse_epoch
from shoal.node.containers import find, newest, previous
from shoal.node.pods.worker import PodWorker
from shoal.node.runtime.model import Container, ContainerPhase, LogOptions, LogRecord, OutputStream, Runtime

_STREAMS = {
    "": frozenset(OutputStream), "All": frozenset(OutputStream), "Stdout": frozenset({OutputStream.STDOUT}),
    "Stderr": frozenset({OutputStream.STDERR}),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The log that a client requests."""

    options: LogOptions
    previous: bool = False
    timestamps: bool = False
    limit_bytes: int | None = None


def parse(request: ServerRequest, now: float) -> LogRequest:
    """Parse the query; raises ``BadRequest`` for an invalid parameter."""
    since_ns = 0
    if text := request.one("sinceSeconds"):
        since_ns = int((now - _number("sinceSeconds", text)) * 1e9)
    elif text := request.one("sinceTime"):
        try:
            since_ns = int(parse_epoch(text) * 1e9)
        except ValueError as error:
            raise BadRequest(f"sinceTime: {error}") from error
    tail = request.one("tailLines") or request.one("tail")
    limit = request.one("limitBytes")
    stream = request.one("stream")
    if stream not in _STREAMS:
        raise BadRequest(f"stream: {stream!r} is not one of All, Stdout, Stderr")
    return LogRequest(
        options=LogOptions(
            follow=request.flag("follow"), tail=_number("tailLines", tail) if tail and tail != "all" else None,
            since_ns=max(0, since_ns), streams=_STREAMS[stream],
        ),
        previous=request.flag("previous"), timestamps=request.flag("timestamps"),
        limit_bytes=_number("limitBytes", limit) if limit else None,
    )  # fmt: skip


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"{name}: {text!r} must be a number of 0 or more")
    return int(text)


def container_for_logs(worker: PodWorker, name: str, *, before: bool) -> Container:
    """The container whose log is requested; errors have kubelet's messages."""
    pod = worker.pod["metadata"]["name"]
    if find(worker.pod, name) is None:
        raise NotFound(f"container {name} is not valid for pod {pod}")
    containers = worker.view.containers if worker.view is not None else ()
    current = newest(containers).get(name)
    if before:
        found = previous(containers, current) if current is not None else None
        if found is None:
            raise BadRequest(f'previous terminated container "{name}" in pod "{pod}" not found')
        return found
    if current is not None and current.phase is ContainerPhase.CREATED:
        current = previous(containers, current)
    if current is None:
        reason = _waiting_reason(worker, name)
        raise BadRequest(f'container "{name}" in pod "{pod}" is waiting to start: {reason}')
    return current


def _waiting_reason(worker: PodWorker, name: str) -> str:
    status = worker.status
    for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(group) or ():
            if each["name"] == name and (waiting := each["state"].get("waiting")):
                reason, message = waiting.get("reason", ""), waiting.get("message")
                special = reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
                return "trying and failing to pull image" if special else message or reason
    return "ContainerCreating"


async def text_of(runtime: Runtime, container_id: str, wanted: LogRequest) -> AsyncIterator[bytes]:
    """The log as bytes."""
    left = wanted.limit_bytes
    begins = dict.fromkeys(OutputStream, True)  # whether the next record of a stream begins a line
    async for batch in runtime.logs(container_id, wanted.options):
        data = b"".join(_line(record, begins, timestamps=wanted.timestamps) for record in batch)
        if left is not None:
            data = data[:left]
            left -= len(data)
        if data:
            yield data
        if left == 0:
            return


def _line(record: LogRecord, begins: dict[OutputStream, bool], *, timestamps: bool) -> bytes:
    stamped = timestamps and begins[record.stream]
    begins[record.stream] = not record.partial
    return _stamp(record.at_ns) + b" " + record.data if stamped else record.data


def _stamp(at_ns: int) -> bytes:
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z".encode()
