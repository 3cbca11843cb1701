"""Keeps the Service ``kubernetes`` leading to an API server that answers.

Pods find the API server by this Service. Its port and endpoints are written at every start, because a server may start
on another port than last time, and compared every few seconds, because a client may change or delete them. Servers that
share a store share the Service too: each leaves what another server has written while that one answers with a
certificate of the cluster's authority, and takes its place when it does not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from contextlib import suppress
from typing import Any

from shoal.apiserver import objects
from shoal.apiserver.context import Core
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import AlreadyExists, ApiError
from shoal.kube.decode import normalize
from shoal.kube.objects import Obj
from shoal.store import StoreReadOnly, StoreUnavailable

NAME, NAMESPACE = "kubernetes", "default"
LOOK_S = 10.0
_ANSWER_S = 2.0  # another server that takes longer counts as gone
_AUTHOR = Author("shoal-apiserver")
_FIELDS = ("spec", "subsets", "addressType", "endpoints", "ports")
_log = get_logger("advertising")


class Advertising:
    """``ensure`` before the first request; then ``start`` it."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core = core
        self._writer = writer
        self._loops = SupervisedLoops(core.clock)

    def start(self) -> None:
        self._loops.start("advertising", self._run)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _run(self) -> None:
        while True:
            await self._core.clock.sleep(LOOK_S)
            try:
                await self.ensure()
            except (ApiError, StoreReadOnly, StoreUnavailable) as error:
                _log.info("endpoints of the API server not written, will retry", reason=str(error))

    async def ensure(self) -> None:
        """Make the Service, its Endpoints and its EndpointSlice lead to this server, or leave them with another server
        of the same store that answers."""
        stored = self._stored("discovery.k8s.io", "EndpointSlice")
        if stored is not None and self._core.store.shared:
            others = _addresses(stored) - {(self._core.config.advertise_address, self._core.config.advertise_port)}
            if others and await self._any_answers(others):
                return
        for wanted in self.objects():
            await self._write(wanted)

    def objects(self) -> list[Obj]:
        """The Service, its Endpoints and its EndpointSlice as they should be."""
        config = self._core.config
        port = {"name": "https", "port": config.advertise_port, "protocol": "TCP"}
        address = str(ipaddress.ip_network(config.service_cidr).network_address + 1)
        return [
            _object(
                "v1", "Service", {"component": "apiserver", "provider": "kubernetes"},
                spec={"clusterIP": address, "ports": [{**port, "port": 443, "targetPort": config.advertise_port}]},
            ),
            _object(
                "v1", "Endpoints", {"endpointslice.kubernetes.io/skip-mirror": "true"},
                subsets=[{"addresses": [{"ip": config.advertise_address}], "ports": [port]}],
            ),
            _object(
                "discovery.k8s.io/v1", "EndpointSlice", {"kubernetes.io/service-name": NAME},
                addressType="IPv4",
                endpoints=[{"addresses": [config.advertise_address], "conditions": {"ready": True}}],
                ports=[port],
            ),
        ]  # fmt: skip

    def _stored(self, group: str, kind: str) -> Obj | None:
        served = self._core.registry.by_kind(group, "v1", kind)
        assert served is not None, kind
        entry = self._core.store.get(served.key_of(NAMESPACE, NAME))
        return None if entry is None else objects.decode(entry)

    async def _write(self, wanted: Obj) -> None:
        group = wanted["apiVersion"].rpartition("/")[0]
        served = self._core.registry.by_kind(group, "v1", wanted["kind"])
        assert served is not None, wanted["kind"]
        entry = self._core.store.get(served.key_of(NAMESPACE, NAME))
        if entry is None:
            normalize(wanted, served.type)
            with suppress(AlreadyExists):
                await self._writer.store(Write.own(served, wanted, None, _AUTHOR, trusted=True))
            return
        stored = objects.decode(entry)
        if wanted["kind"] == "Service":  # its address stays, and the fields that users may set
            wanted["spec"] = {"ports": wanted["spec"]["ports"]}
        changed = {field: _over(stored.get(field), wanted[field]) for field in _FIELDS if field in wanted}
        if any(stored.get(field) != value for field, value in changed.items()):
            _log.info("endpoints of the API server changed", kind=wanted["kind"], port=self._core.config.advertise_port)
            with suppress(Retry):  # changed by another server in the meantime: the next look compares again
                await self._writer.store(Write.own(served, {**stored, **changed}, entry, _AUTHOR, trusted=True))

    async def _any_answers(self, addresses: set[tuple[str, int]]) -> bool:
        answers = await asyncio.gather(*(self._answers(host, port) for host, port in sorted(addresses)))
        return any(answers)

    async def _answers(self, host: str, port: int) -> bool:
        """Whether a server of this cluster listens there; another program may have taken the port."""
        try:
            context = ssl.create_default_context(cadata=self._core.config.ca_certificate)
            context.check_hostname = False  # it is known by its address
            async with asyncio.timeout(_ANSWER_S):
                _, writer = await asyncio.open_connection(host, port, ssl=context)
        except (OSError, TimeoutError, ValueError):  # nothing, another program, or no authority to check it by
            return False
        writer.transport.abort()
        return True


def _object(api_version: str, kind: str, labels: dict[str, str], **content: Any) -> Obj:
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _over(stored: Any, wanted: Any) -> Any:
    """``wanted``, with what the stored value has besides it in maps: defaults and the Service's further fields."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return {**stored, **{name: _over(stored.get(name), value) for name, value in wanted.items()}}
    if isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        return [_over(old, new) for old, new in zip(stored, wanted, strict=True)]
    return wanted


def _addresses(piece: Obj) -> set[tuple[str, int]]:
    ports = [one["port"] for one in piece.get("ports") or () if one.get("port")]
    hosts = [host for one in piece.get("endpoints") or () for host in one.get("addresses") or ()]
    return {(host, port) for host in hosts for port in ports}
