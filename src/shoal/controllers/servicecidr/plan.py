"""Checks ranges and records of service addresses. Pure; ``now`` is seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal.controllers.pods.conditions import find_condition
from shoal.controllers.pods.status import created_at
from shoal.kube.names import parse_cidr, parse_ip
from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch

FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
FAMILY: Final = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR: Final = "ipallocator.k8s.io"
DELETION_GRACE_S: Final = 10.0  # so that every server has seen the deletion and allocates no more addresses
ORPHAN_GRACE_S: Final = 60.0  # a record can be older than its service by the duration of a request
RECENT_S: Final = 5.0

_READY: Final = "Kubernetes Service CIDR is ready"
_BLOCKED: Final = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)


# ranges


def contains_address(cidr: Obj, address: str) -> bool:
    """Whether an allocatable address is in one of the range's networks."""
    parsed = parse_ip(address)
    if parsed is None:
        return False
    for text in cidr["spec"].get("cidrs") or ():
        network = parse_cidr(text)
        if network is None or network.version != parsed.version or parsed not in network:
            continue
        edges = [network.network_address] + ([network.broadcast_address] if network.version == 4 else [])
        if network.num_addresses <= 2 or parsed not in edges:
            return True
    return False


def overlaps(one: Obj, other: Obj) -> bool:
    mine, theirs = ([parse_cidr(text) for text in each["spec"].get("cidrs") or ()] for each in (one, other))
    pairs = ((a, b) for a in mine for b in theirs if a is not None and b is not None)
    return any(a.version == b.version and a.overlaps(b) for a, b in pairs)


def is_allocated(address: Obj) -> bool:
    """Whether an API server created the record for a service."""
    return (address["metadata"].get("labels") or {}).get(MANAGED_BY) == ALLOCATOR


def can_go(cidr: Obj, ranges: Iterable[Obj], addresses: Iterable[Obj]) -> bool:
    """Whether every allocated address stays in some range without this one."""
    name = cidr["metadata"]["name"]
    others = [each for each in ranges if each["metadata"]["name"] != name]
    if all(_is_inside(text, others) for text in cidr["spec"].get("cidrs") or ()):
        return True
    for address in addresses:
        text = address["metadata"]["name"]
        if is_allocated(address) and contains_address(cidr, text):
            if not any(contains_address(each, text) for each in others):
                return False
    return True


def _is_inside(text: str, ranges: Iterable[Obj]) -> bool:
    inner = parse_cidr(text)
    if inner is None:
        return True
    for each in ranges:
        for outer in map(parse_cidr, each["spec"].get("cidrs") or ()):
            if outer is not None and outer.version == inner.version and inner.subnet_of(outer):  # type: ignore[arg-type]
                return True
    return False


def condition_of_range(now: float, *, blocked: bool) -> Obj:
    return {
        "type": "Ready",
        "status": "False" if blocked else "True",
        "reason": "Terminating" if blocked else "",
        "message": _BLOCKED if blocked else _READY,
        "lastTransitionTime": format_time(now),
    }


def with_range_condition(cidr: Obj, condition: Obj) -> Obj | None:
    """The status with the condition; None if it is already there."""
    conditions: Sequence[Obj] = (cidr.get("status") or {}).get("conditions") or ()
    known = find_condition(conditions, condition["type"])
    if known is not None and all(known.get(field, "") == condition[field] for field in ("status", "reason", "message")):
        return None
    if known is not None and known["status"] == condition["status"]:
        condition = {**condition, "lastTransitionTime": known["lastTransitionTime"]}
    kept = [each for each in conditions if each["type"] != condition["type"]]
    return {**(cidr.get("status") or {}), "conditions": [*kept, condition]}


def deletion_wait_s(cidr: Obj, now: float) -> float:
    """The delay until a range that is being deleted may be released."""
    return max(0.0, parse_epoch(cidr["metadata"]["deletionTimestamp"]) + DELETION_GRACE_S - now)


# records


class Fault(StrEnum):
    """A fault of a service's address or of a record."""

    NONE = ""
    OUT_OF_RANGE = "ClusterIPOutOfRange"
    NOT_ALLOCATED = "ClusterIPNotAllocated"
    WRONG_REFERENCE = "wrong reference"
    DUPLICATE = "ClusterIPAlreadyAllocated"
    WRONG_LABELS = "wrong labels"


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """The result for a record: whether to delete it and why, or when to check again."""

    reason: str = ""
    message: str = ""
    wait_s: float | None = None


KEEP: Final = RecordCheck()


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def cluster_addresses(service: Obj) -> tuple[str, ...]:
    """The addresses of a service, in canonical form."""
    spec = service["spec"]
    if (spec.get("clusterIP") or "None") == "None":
        return ()
    return tuple(str(parsed) for text in spec.get("clusterIPs") or () if (parsed := parse_ip(text)) is not None)


def parent_of(record: Obj) -> tuple[str, str] | None:
    """Namespace and name of a record's service; None if its parent is not a service."""
    parent = record["spec"].get("parentRef") or {}
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return parent.get("namespace") or "", parent.get("name") or ""


def check_service(
    service: Obj, address: str, record: Obj | None, parent: Obj | None, ranges: Iterable[Obj]
) -> Fault:  # fmt: skip
    """The fault of the record of a service's address, or None. ``parent`` is the service that the record names."""
    if not any(contains_address(each, address) for each in ranges):
        return Fault.OUT_OF_RANGE
    if record is None:
        return Fault.NOT_ALLOCATED
    named = parent_of(record)
    about = service["metadata"]
    if named is None:
        return Fault.WRONG_REFERENCE
    if named != (about["namespace"], about["name"]):
        if parent is None:
            return Fault.WRONG_REFERENCE
        if address in cluster_addresses(parent):
            return Fault.DUPLICATE
    labels = record["metadata"].get("labels") or {}
    if labels.get(FAMILY) != family_of(address) or labels.get(MANAGED_BY) != ALLOCATOR:
        return Fault.WRONG_LABELS
    return Fault.NONE


def check_record(record: Obj, service: Obj | None, now: float) -> RecordCheck:
    """Check that the service of an allocated record has the address. ``service`` is the one it names."""
    if not is_allocated(record):
        return KEEP
    name = record["metadata"]["name"]
    named = parent_of(record)
    if named is None:
        text = f"IPAddress {name} appears to have been modified, not referencing a Service: cleaning up"
        return RecordCheck("IPAddressNotAllocated", text)
    age_s = now - created_at(record)
    who = f"{named[0]}/{named[1]}"
    if service is None:
        if age_s <= ORPHAN_GRACE_S:
            return RecordCheck(wait_s=ORPHAN_GRACE_S - age_s + 1)
        text = f"IPAddress: {name} for Service {who} appears to have leaked: cleaning up"
        return RecordCheck("IPAddressNotAllocated", text)
    if name in (service["spec"].get("clusterIPs") or ()):
        return KEEP
    if service["spec"].get("type") == "ExternalName" and age_s < ORPHAN_GRACE_S:
        return RecordCheck(wait_s=ORPHAN_GRACE_S - age_s)
    if created_at(record) > created_at(service) and age_s < RECENT_S:
        return RecordCheck(wait_s=RECENT_S)
    return RecordCheck(
        "IPAddressWrongReference", f"IPAddress: {name} for Service {who} has a wrong reference; cleaning up"
    )


def record_of(service: Obj, address: str) -> Obj:
    about = service["metadata"]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": {FAMILY: family_of(address), MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"resource": "services", "namespace": about["namespace"], "name": about["name"]}},
    }
