"""Judges keys for Envoy over a Unix socket: the service behind ext_authz.

It refuses nobody: it says its verdicts, and the gate behind refuses what has no good one. A question that cannot be
read gets no verdict.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.auth.v3 import attribute_context_pb2, external_auth_pb2, external_auth_pb2_grpc
from google.protobuf import struct_pb2
from google.rpc import status_pb2

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.sentinel.policies import wire
from shoal.sentinel.policies.keys import KeyBook, Known, judge
from shoal.sentinel.translate.parts import PRINCIPAL_HEADER

_OVERWRITE = base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
_rules = lru_cache(maxsize=10_000)(wire.read_key_rules)


class KeysService(external_auth_pb2_grpc.AuthorizationServicer):  # type: ignore[misc]
    """``Check`` of ext_authz."""

    def __init__(self, book: KeyBook, *, clock: Clock, metrics: Metrics) -> None:
        self._book = book
        self._clock = clock
        counter = metrics.counter("shoal_sentinel_key_verdicts_total", "Keys judged, by verdict.", ("verdict",))
        verdicts = (wire.ALLOWED, wire.FORBIDDEN, wire.MISSING, wire.INVALID)
        self._counted = {verdict: counter.labels(verdict) for verdict in verdicts}

    async def Check(
        self, request: external_auth_pb2.CheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> external_auth_pb2.CheckResponse:
        return response(*self.verdicts(request.attributes))

    def verdicts(
        self, about: attribute_context_pb2.AttributeContext
    ) -> tuple[tuple[tuple[str, str], ...], Known | None]:
        """By policy, and the first key that was good."""
        asked, http = about.context_extensions, about.request.http
        try:
            rules = _rules(asked[wire.RULES]) if wire.RULES in asked else ()
        except wire.BadRule:
            return (), None
        environment, now = asked.get(wire.ENVIRONMENT, ""), self._clock.wall_s()
        found: list[tuple[str, str]] = []
        good: Known | None = None
        for rule in rules:
            verdict, known = judge(self._book, environment, rule, http.headers, http.path, now=now)
            self._counted[verdict].inc()
            found.append((rule.policy, verdict))
            good = good or known
        return tuple(found), good


@lru_cache(maxsize=10_000)
def response(verdicts: tuple[tuple[str, str], ...], good: Known | None) -> external_auth_pb2.CheckResponse:
    said = struct_pb2.Struct()
    said.update({wire.VERDICTS: dict(verdicts)})
    ok = external_auth_pb2.OkHttpResponse()
    if good is not None:
        said.update({wire.SUBJECT: good.key.subject, wire.PRINCIPAL: dict(good.principal)})
        ok.headers.append(
            base_pb2.HeaderValueOption(
                header=base_pb2.HeaderValue(key=PRINCIPAL_HEADER, value=good.header), append_action=_OVERWRITE
            )
        )
    return external_auth_pb2.CheckResponse(status=status_pb2.Status(code=0), ok_response=ok, dynamic_metadata=said)
