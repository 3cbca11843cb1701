"""Tells the proxy process the names of Services, and makes the Service ``kube-dns``, whose address its DNS has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from shoal.base.logs import get_logger
from shoal.client import Client, builtin
from shoal.errors import ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.node.dns.model import ServiceNames
from shoal.node.dns.plan import names_of
from shoal.node.proxy.reconcile import BY_SERVICE
from shoal.reconcile import DONE, Informer, ObjectKey, Result

log = get_logger("node.proxy")

NAME, NAMESPACE = "kube-dns", "kube-system"


class Names(Protocol):
    """The table of the DNS server."""

    async def set_names(self, key: ObjectKey, names: ServiceNames | None) -> None: ...

    async def keep_names(self, keys: Collection[ObjectKey]) -> None:
        """Forget all others, which an earlier process has told."""


class ServiceDns:
    """A controller calls ``reconcile`` with the keys of services."""

    def __init__(self, client: Client, services: Informer, slices: Informer, names: Names, address: str) -> None:
        self._services = services.cache
        self._slices = slices.cache
        self._resource = client.of(builtin("services"))
        self._names = names
        self._address = address
        self._told: dict[ObjectKey, ServiceNames] = {}

    async def begin(self) -> None:
        """The caches are complete."""
        await self._names.keep_names(list(self._services.keys()))
        try:
            await self._resource.get(NAME, NAMESPACE)
        except NotFound:
            try:
                await self._resource.create(_service(self._address), NAMESPACE)
            except ApiError as error:
                log.warning("the Service kube-dns cannot be made", reason=str(error))

    async def reconcile(self, key: ObjectKey) -> Result:
        service = self._services.get(key)
        found = None if service is None else names_of(service, self._slices.by_index(BY_SERVICE, str(key)))
        if found == self._told.get(key):
            return DONE
        await self._names.set_names(key, found)
        if found is None:
            self._told.pop(key, None)
        else:
            self._told[key] = found
        return DONE


def _service(address: str) -> Obj:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    labels = {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
    return {"metadata": {"name": NAME, "labels": labels}, "spec": {"clusterIP": address, "ports": ports}}
