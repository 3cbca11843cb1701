"""Selects the audit level of each request, assigns its audit id and passes its events to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from shoal.apiserver.audit.config import AuditConfig
from shoal.apiserver.audit.event import NAME_WITHIN, AuditRecord, AuditTrail, line
from shoal.apiserver.audit.files import LogWriter
from shoal.apiserver.audit.policy import (
    COMPLETE,
    METADATA,
    PANIC,
    RECEIVED,
    REQUEST_RESPONSE,
    STARTED,
    AuditAttributes,
    AuditGrade,
    default_policy,
    is_secret,
)
from shoal.apiserver.messages import Answer, Relay, Request, Response, ResponseStream, Sink, Upgrade
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.user import User
from shoal.base.clock import Clock

HEADER = b"audit-id"
_CACHE_LIMIT = 20_000
_MAX_ID = 64
_NONE: Mapping[str, str] = MappingProxyType({})
_REFUSAL = AuditGrade(METADATA)
_CONFIDENTIAL_REFUSAL = AuditGrade(METADATA, confidential=True)
_MEGABYTE = 1024 * 1024


class Auditor:
    """The audit log of one server."""

    def __init__(self, config: AuditConfig, clock: Clock, prefix: str) -> None:
        """``prefix`` is a UUID of this process: all its audit ids begin with it."""
        self._clock = clock
        self._policy = config.policy or default_policy()
        self._refusals = config.path is not None and self._policy.refusals
        self._grades: dict[tuple[Any, ...], AuditGrade | None] = {}
        self._prefix = prefix[:24]
        self._head = f"Audit-Id: {prefix[:24]}".encode()
        self._count = 0
        self.events = 0
        self.log: LogWriter[AuditRecord] | None = None
        if config.path is not None:
            self.log = LogWriter(
                config.path,
                line,
                clock=clock,
                max_bytes=config.max_size_mb * _MEGABYTE,
                max_backups=config.max_backups,
                max_age_days=config.max_age_days,
            )

    def start(self) -> None:
        if self.log is not None:
            self.log.start()

    def stop(self) -> None:
        if self.log is not None:
            self.log.stop()

    # -- ids -------------------------------------------------------------------------------------------------------

    def head(self, request: Request) -> bytes:
        """The header line that names the request: by the client's own id, else by a new one."""
        given = request.headers.get(HEADER)
        if given is not None and len(given) <= _MAX_ID:
            return b"Audit-Id: %b\r\n" % given
        self._count += 1
        return b"%b%012x\r\n" % (self._head, self._count)

    # -- what is recorded ------------------------------------------------------------------------------------------

    def trail(
        self,
        key: tuple[Any, ...],
        head: bytes,
        request: Request,
        asker: User | None,
        user: User,
        target: ResourcePath | None,
    ) -> AuditTrail | None:
        """Begin the record of a request; None when there will be none. ``key`` as for the gate's passages."""
        if self.log is None:
            return None
        if self._policy.by_name and target is not None:
            key = (*key, target.name)
        try:
            grade = self._grades[key]
        except KeyError:
            grade = self._grade(key, target)
        if grade is None:
            return None
        trail = AuditTrail(grade, _id(head), request, key[2], asker, user, target, self._clock.wall_s())
        if RECEIVED in grade.stages:
            self._put(AuditRecord(trail, RECEIVED, trail.received_s))
        return trail

    def complete(self, trail: AuditTrail, answer: Answer) -> Answer:
        """Record the response. The caller must send the returned one instead: streams are recorded when they end."""
        stages = trail.grade.stages
        if isinstance(answer, Response):
            if COMPLETE in stages:
                self._put(AuditRecord(trail, COMPLETE, self._clock.wall_s(), answer.status, _body(trail, answer)))
            return answer
        if STARTED in stages:
            self._put(AuditRecord(trail, STARTED, self._clock.wall_s(), answer.status))
        if COMPLETE not in stages:
            return answer
        if isinstance(answer, Relay | Upgrade):
            answer.on_end = partial(self.ended, trail, answer.status)
            return answer
        return _Followed(answer, self, trail)

    def ended(self, trail: AuditTrail, status: int) -> None:
        """Record the end of a stream."""
        self._put(AuditRecord(trail, COMPLETE, self._clock.wall_s(), status))

    def panicked(self, trail: AuditTrail) -> None:
        """Record an internal error."""
        if PANIC in trail.grade.stages:
            self._put(AuditRecord(trail, PANIC, self._clock.wall_s(), 500))

    def refused(
        self,
        head: bytes,
        request: Request,
        verb: str,
        asker: User | None,
        user: User | None,
        target: ResourcePath | None,
        answer: Response,
        *,
        forbidden: bool,
    ) -> None:
        """Record a rejected request that no rule matches; ``forbidden``: by authorization."""
        if not self._refusals:
            return
        secret = target is not None and is_secret(_resource(target.plural, target.subresource))
        grade = _CONFIDENTIAL_REFUSAL if secret else _REFUSAL
        now = self._clock.wall_s()
        trail = AuditTrail(grade, _id(head), request, verb, asker, user, target, now)
        if forbidden:
            trail.decided(False)
        self._put(AuditRecord(trail, COMPLETE, now, answer.status, _body(trail, answer)))

    def _put(self, record: AuditRecord) -> None:
        self.events += 1
        assert self.log is not None
        self.log.put(record)

    def _grade(self, key: tuple[Any, ...], target: ResourcePath | None) -> AuditGrade | None:
        user, groups, verb = key[:3]
        if target is None:
            asked = AuditAttributes(user, groups, verb, path=key[3])
        else:
            resource = _resource(target.plural, target.subresource)
            asked = AuditAttributes(user, groups, verb, target.group, resource, target.namespace or "", target.name)
        if len(self._grades) >= _CACHE_LIMIT:
            self._grades.clear()
        grade = self._grades[key] = self._policy.grade(asked)
        return grade


def _resource(plural: str, subresource: str) -> str:
    return f"{plural}/{subresource}" if subresource else plural


def _id(head: bytes) -> bytes:
    return head[10 : head.index(b"\r")]


def _body(trail: AuditTrail, answer: Response) -> bytes:
    """The part of the response that the record may need."""
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    if answer.status >= 400 or trail.grade.level >= REQUEST_RESPONSE:
        return body
    return body[:NAME_WITHIN] if answer.status == 201 else b""


class _Followed:
    """A stream whose end is recorded."""

    def __init__(self, stream: ResponseStream, auditor: Auditor, trail: AuditTrail) -> None:
        self.status = stream.status
        self.content_type = stream.content_type
        self.headers: Sequence[tuple[bytes, bytes]] = stream.headers
        self._stream = stream
        self._auditor: Auditor | None = auditor
        self._trail = trail

    def attach(self, sink: Sink) -> None:
        self._stream.attach(_Tap(sink, self))

    def on_writable(self) -> None:
        self._stream.on_writable()

    def on_closed(self) -> None:
        self._stream.on_closed()
        self.ended()

    def ended(self) -> None:
        auditor, self._auditor = self._auditor, None
        if auditor is not None:
            auditor.ended(self._trail, self.status)


class _Tap:
    """A sink that reports the end of the stream."""

    def __init__(self, sink: Sink, followed: _Followed) -> None:
        self._sink = sink
        self._followed = followed

    @property
    def writable(self) -> bool:
        return self._sink.writable

    def write(self, data: bytes) -> None:
        self._sink.write(data)

    def end(self) -> None:
        self._sink.end()
        self._followed.ended()

    def abort(self) -> None:
        self._sink.abort()
        self._followed.ended()
