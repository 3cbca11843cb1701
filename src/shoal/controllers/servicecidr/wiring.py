"""Watches ranges, address records and services, which depend on each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.controllers.context import ControllerContext
from shoal.controllers.servicecidr.plan import cluster_addresses, contains_address, is_allocated, overlaps
from shoal.controllers.servicecidr.reconcile import AddressRepair, ServiceCidrController
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change
from shoal.reconcile.keys import ObjectKey, key_of

RESYNC_S: Final = 180.0
SETTLE_S: Final = 1.0


def add(context: ControllerContext) -> None:
    add_ranges(context)
    add_repair(context)


def add_ranges(context: ControllerContext) -> None:
    work = ServiceCidrController(context)
    controller = context.controller("servicecidr", work.reconcile, workers=1)

    def overlapping(cidr: Obj) -> Iterable[ObjectKey]:
        return [key_of(each) for each in work.ranges.cache if overlaps(each, cidr)]

    def containing(address: Obj) -> Iterable[ObjectKey]:
        if not is_allocated(address):
            return ()
        name = address["metadata"]["name"]
        return [key_of(each) for each in work.ranges.cache if contains_address(each, name)]

    controller.watches(work.ranges)
    controller.maps(work.ranges, overlapping, when=_comes_or_goes)
    controller.maps(work.addresses, containing, when=_comes_or_goes)


def add_repair(context: ControllerContext) -> None:
    """The repair needs more permissions than Kubernetes' controller of ranges, whose API server does this part
    itself."""
    work = AddressRepair(context)
    services = context.controller("service-addresses", work.reconcile_service, workers=2, resync_s=RESYNC_S)
    services.watches(work.services, when=lambda change: False)  # for the resync; the handler below is for changes
    services.maps(work.ranges, lambda cidr: ())

    def on_service(change: Change) -> None:
        """A service changed. Its records were written in the same transaction but arrive by another watch, so wait for
        them."""
        if change.new is not None and _addresses_changed(change):
            services.queue.add_after(change.key, SETTLE_S)

    work.services.cache.add_handler(on_service)

    def holder(record: Obj) -> Iterable[ObjectKey]:
        parent = record["spec"].get("parentRef") or {}
        if parent.get("resource") != "services":
            return ()
        return (ObjectKey(parent.get("namespace") or "", parent.get("name") or ""),)

    services.maps(work.records, holder, when=lambda change: change.old is not None)
    records = context.controller("ipaddress-repair", work.reconcile_record, workers=2, resync_s=RESYNC_S)
    records.watches(work.records)

    def released(service: Obj) -> Iterable[ObjectKey]:
        return [ObjectKey("", address) for address in cluster_addresses(service)]

    records.maps(work.services, released, when=lambda change: change.old is not None and _addresses_changed(change))


def _comes_or_goes(change: Change) -> bool:
    return change.old is None or change.new is None


def _addresses_changed(change: Change) -> bool:
    if change.old is None or change.new is None:
        return True
    return cluster_addresses(change.old) != cluster_addresses(change.new)
