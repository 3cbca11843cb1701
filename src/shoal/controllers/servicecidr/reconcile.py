"""Keeps ranges ready, protects them while in use, and repairs differences between address records and services."""

from __future__ import annotations

from shoal.client import PatchType
from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.status import is_terminating
from shoal.controllers.servicecidr.plan import (
    FINALIZER,
    Fault,
    can_go,
    check_record,
    check_service,
    cluster_addresses,
    condition_of_range,
    deletion_wait_s,
    family_of,
    parent_of,
    record_of,
    with_range_condition,
)
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey

_GROUP = "networking.k8s.io"


class ServiceCidrController:
    """Reconciles ranges."""

    def __init__(self, context: ControllerContext) -> None:
        self.ranges = context.informer("servicecidrs", _GROUP)
        self.addresses = context.informer("ipaddresses", _GROUP)
        self._resource = context.resource("servicecidrs", _GROUP)
        self._clock = context.clock
        self._events = context.events

    async def reconcile(self, key: ObjectKey) -> Result:
        cidr = self.ranges.cache.get(key)
        if cidr is None:
            return DONE
        if is_terminating(cidr):
            return await self._release(cidr)
        if FINALIZER not in (cidr["metadata"].get("finalizers") or ()):
            patch = {"metadata": {"uid": cidr["metadata"]["uid"], "finalizers": [FINALIZER]}}
            cidr = await self._resource.patch(key.name, patch, type=PatchType.STRATEGIC)
        try:
            await self._write_ready(cidr, blocked=False)
        except (Conflict, NotFound):
            raise
        except ApiError:
            text = "The ServiceCIDR Status can not be set to Ready=True"
            self._events.record(cidr, EventType.WARNING, "KubernetesServiceCIDRError", text)
            raise
        return DONE

    async def _release(self, cidr: Obj) -> Result:
        """Release a range when none of its addresses is in use and every server has seen its deletion."""
        if not can_go(cidr, self.ranges.cache, self.addresses.cache):
            await self._write_ready(cidr, blocked=True)
            return DONE
        wait_s = deletion_wait_s(cidr, self._clock.wall_s())
        if wait_s > 0:
            return Result(after_s=wait_s)
        about = cidr["metadata"]
        if FINALIZER in (about.get("finalizers") or ()):
            patch = {"metadata": {"uid": about["uid"], "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
            try:
                await self._resource.patch(about["name"], patch, type=PatchType.STRATEGIC)
            except NotFound:
                pass
        return DONE

    async def _write_ready(self, cidr: Obj, *, blocked: bool) -> None:
        status = with_range_condition(cidr, condition_of_range(self._clock.wall_s(), blocked=blocked))
        if status is not None:
            await self._resource.replace_status({**cidr, "status": status})


class AddressRepair:
    """Reconciles services with the records of their addresses, and records with their services."""

    def __init__(self, context: ControllerContext) -> None:
        self.services = context.informer("services")
        self.ranges = context.informer("servicecidrs", _GROUP)
        self.records = context.informer("ipaddresses", _GROUP)
        self._service_resource = context.resource("services")
        self._resource = context.resource("ipaddresses", _GROUP)
        self._clock = context.clock
        self._events = context.events

    async def reconcile_service(self, key: ObjectKey) -> Result:
        service = self.services.cache.get(key)
        if service is not None and not is_terminating(service):
            for address in cluster_addresses(service):
                await self._check(service, address)
        return DONE

    async def _check(self, service: Obj, address: str) -> None:
        fault = self._fault(service, address, self.records.cache.get(ObjectKey("", address)))
        family = family_of(address)
        if fault is Fault.OUT_OF_RANGE:
            text = f"{address} is not within any configured Service CIDR; please recreate service"
            self._warn(service, "ClusterIPOutOfRange", f"Cluster IP [{family}]: {text}")
        elif fault is Fault.DUPLICATE:
            text = f"Cluster IP [{family}]:{address} was assigned to multiple services; please recreate service"
            self._warn(service, "ClusterIPAlreadyAllocated", text)
        elif fault is not Fault.NONE:
            await self._repair(service, address)

    def _fault(self, service: Obj, address: str, record: Obj | None) -> Fault:
        parent = parent_of(record) if record is not None else None
        named = self.services.cache.get(ObjectKey(*parent)) if parent is not None else None
        return check_service(service, address, record, named, self.ranges.cache)

    async def _repair(self, service: Obj, address: str) -> None:
        """Repair after asking the server, because the caches of services and records are not synchronized."""
        about, family = service["metadata"], family_of(address)
        try:
            fresh = await self._service_resource.get(about["name"], about["namespace"])
        except NotFound:
            return
        if address not in cluster_addresses(fresh):
            return
        try:
            record: Obj | None = await self._resource.get(address)
        except NotFound:
            record = None
        match self._fault(fresh, address, record):
            case Fault.NOT_ALLOCATED:
                text = f"Cluster IP [{family}]: {address} is not allocated; repairing"
                self._warn(fresh, "ClusterIPNotAllocated", text)
            case Fault.WRONG_REFERENCE:
                who = f"{about['namespace']}/{about['name']}"
                text = f"the ClusterIP [{family}]: {address} for Service {who} has a wrong reference; repairing"
                self._warn(fresh, "ClusterIPNotAllocated", text)
            case Fault.WRONG_LABELS:
                pass
            case _:
                return
        await self._record_anew(fresh, address, record)

    async def _record_anew(self, service: Obj, address: str, record: Obj | None) -> None:
        if record is not None:
            await self._delete(record)
        try:
            await self._resource.create(record_of(service, address))
        except AlreadyExists:
            pass  # the watch delivers its change, which is reconciled then

    async def reconcile_record(self, key: ObjectKey) -> Result:
        record = self.records.cache.get(key)
        if record is None:
            return DONE
        named = parent_of(record)
        service = self.services.cache.get(ObjectKey(*named)) if named is not None else None
        verdict = check_record(record, service, self._clock.wall_s())
        if verdict.reason:
            self._warn(record, verdict.reason, verdict.message)
            await self._delete(record)
        return Result(after_s=verdict.wait_s)

    async def _delete(self, record: Obj) -> None:
        about = record["metadata"]
        try:
            await self._resource.delete(about["name"], uid=about["uid"])
        except (NotFound, Conflict):
            pass  # deleted, or replaced by another

    def _warn(self, obj: Obj, reason: str, text: str) -> None:
        self._events.record(obj, EventType.WARNING, reason, text)
