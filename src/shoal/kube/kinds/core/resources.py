"""Names and amounts of resources in containers and quotas, and totals of a pod."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from shoal.base.bounded_cache import bounded_cache
from shoal.errors import FieldError, duplicate, forbidden, invalid, required
from shoal.kube.kinds.checks import (
    NEGATIVE,
    NOT_INTEGER,
    Errors,
    check_syntax,
    not_found_among,
    parse_quantity,
    quantity_of,
)
from shoal.kube.names import is_dns1123_label, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.quantity import ZERO, Quantity

NameFaults = Callable[[str], tuple[str, ...]]
ResourceList = Mapping[str, str]

HUGE_PAGES: Final = "hugepages-"
STANDARD_CONTAINER: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset({
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
})  # fmt: skip
_COMPUTE = frozenset({
    "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage",
    "requests.storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
})  # fmt: skip
STANDARD_QUOTA: Final = _COUNTED | _COMPUTE
_STANDARD = STANDARD_QUOTA | {"storage"}
_NOTHING: ResourceList = {}


def is_huge_page(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def _is_quota_huge_page(name: str) -> bool:
    return name.startswith((HUGE_PAGES, "requests.hugepages-"))


def is_native(name: str) -> bool:
    """Whether Kubernetes defines the resource: it has no domain, or one under kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


@bounded_cache(1024)
def is_extended(name: str) -> bool:
    """Whether a vendor defines the resource, such as ``example.com/gpu``."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not is_qualified_name(f"requests.{name}")


@bounded_cache(1024)
def is_overcommittable(name: str) -> bool:
    """Whether a request may be below its limit."""
    return is_native(name) and not is_huge_page(name)


@bounded_cache(1024)
def is_counted(name: str) -> bool:
    """Whether amounts of the resource are whole numbers."""
    return name in _COUNTED or is_extended(name)


def resource_name_faults(name: str) -> tuple[str, ...]:
    faults = is_qualified_name(name)
    if not faults and "/" not in name and name not in _STANDARD and not _is_quota_huge_page(name):
        return ("must be a standard resource type or fully qualified",)
    return faults


@bounded_cache(1024)
def container_resource_faults(name: str) -> tuple[str, ...]:
    """Why a name cannot be a resource of a container."""
    faults = resource_name_faults(name)
    if "/" not in name:
        if name not in STANDARD_CONTAINER and not is_huge_page(name):
            return (*faults, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        return (*faults, "doesn't follow extended resource name standard")
    return faults


@bounded_cache(1024)
def quota_resource_faults(name: str) -> tuple[str, ...]:
    """Why a name cannot be a resource of a quota."""
    faults = resource_name_faults(name)
    if "/" not in name and name not in STANDARD_QUOTA and not _is_quota_huge_page(name):
        return (*faults, "must be a standard resource for quota")
    return faults


def is_pod_level(name: str) -> bool:
    """Whether the resource can be requested for a whole pod."""
    return name in ("cpu", "memory") or is_huge_page(name)


def round_up_to_milli(resources: dict[str, str] | None) -> None:
    """Round amounts up to thousandths, in place, as Kubernetes stores them."""
    if not resources:
        return
    for name, text in resources.items():
        if text[-1:] in ("n", "u") or "e-" in text.lower():
            resources[name] = _milli_text(text)


@bounded_cache(1024)
def _milli_text(text: str) -> str:
    try:
        amount = parse_quantity(text)
    except ValueError:
        return text
    return str(Quantity(amount.milli(), -3, amount.format))


def check_resource_amount(name: str, text: str, path: str, errors: Errors) -> Quantity:
    """The amount may not be negative; for counted resources it must be whole."""
    try:
        amount = parse_quantity(text)
    except (ValueError, TypeError):
        amount = quantity_of(text)
    if amount.mantissa < 0:
        errors.append(invalid(f"{path}[{name}]", str(amount), NEGATIVE))
    if name not in STANDARD_CONTAINER and is_counted(name) and amount.milli() % 1000:
        errors.append(invalid(f"{path}[{name}]", str(amount), NOT_INTEGER))
    return amount


def check_resource_list(resources: ResourceList, faults: NameFaults, path: str, errors: Errors) -> None:
    """Every name and amount of a list of resources."""
    for name, text in resources.items():
        for fault in faults(name):
            errors.append(invalid(f"{path}[{name}]", name, fault))
        check_resource_amount(name, text, path, errors)


def check_requirements(
    requirements: Obj,
    path: str,
    errors: Errors,
    *,
    claim_names: Collection[str] = (),
    faults: NameFaults = container_resource_faults,
) -> None:
    """Requests and limits of a container or a pod: names, amounts, and requests within limits."""
    limits: ResourceList = requirements.get("limits") or _NOTHING
    requests: ResourceList = requirements.get("requests") or _NOTHING
    if limits:
        check_resource_list(limits, faults, f"{path}.limits", errors)
    for name, text in requests.items():
        for fault in faults(name):
            errors.append(invalid(f"{path}.requests[{name}]", name, fault))
        amount = check_resource_amount(name, text, f"{path}.requests", errors)
        limit = limits.get(name)
        if limit is None:
            if not is_overcommittable(name):
                errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif limit != text:
            _check_within_limit(name, amount, quantity_of(limit), f"{path}.requests", errors)
    for name in (*limits, *requests):
        if name.startswith(HUGE_PAGES):
            _check_huge_pages(limits, requests, path, errors)
            break
    claims = requirements.get("claims")
    if claims:
        check_claims(claims, claim_names, f"{path}.claims", errors)


def _check_within_limit(name: str, amount: Quantity, limit: Quantity, path: str, errors: Errors) -> None:
    wanted, allowed = amount.nano(), limit.nano()
    if wanted != allowed and not is_overcommittable(name):
        errors.append(invalid(path, str(amount), f"must be equal to {name} limit of {limit}"))
    elif wanted > allowed:
        errors.append(invalid(path, str(amount), f"must be less than or equal to {name} limit of {limit}"))


def _check_huge_pages(limits: ResourceList, requests: ResourceList, path: str, errors: Errors) -> None:
    for field, resources in (("limits", limits), ("requests", requests)):
        for name, text in resources.items():
            if is_huge_page(name) and not _is_multiple(name, text):
                amount = str(quantity_of(text))
                detail = f"{amount} is not positive integer multiple of {name}"
                errors.append(invalid(f"{path}.{field}[{name}]", amount, detail))
    if not {"cpu", "memory"}.intersection((*limits, *requests)):
        errors.append(forbidden(path, "HugePages require cpu or memory"))


def _is_multiple(name: str, text: str) -> bool:
    size = quantity_of(name.removeprefix(HUGE_PAGES))
    if size.mantissa <= 0 or size.milli() % 1000:
        return False
    return quantity_of(text).value() % size.value() == 0


def check_claims(claims: list[Obj], pod_claim_names: Collection[str], path: str, errors: Errors) -> None:
    """References of a container to the resource claims of its pod."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name, request = f"{path}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            errors.append(required(where))
            continue
        if name in seen:
            errors.append(duplicate(where, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                check_syntax(request, is_dns1123_label, f"{where}.request", errors)
            if key in seen:
                errors.append(duplicate(where, key))
            elif not request:
                errors += _overlaps(name, seen, where)
            seen.add(key)
        if name not in pod_claim_names:
            listed = f": {', '.join(sorted(pod_claim_names))}" if pod_claim_names else " which is empty"
            errors.append(not_found_among(where, name, f"must be one of the names in pod.spec.resourceClaims{listed}"))


def _overlaps(name: str, seen: Collection[str], path: str) -> list[FieldError]:
    return [duplicate(path, name) for key in seen if key.partition("/")[:2] == (name, "/")]


def _add(total: dict[str, Quantity], resources: Any) -> None:
    for name, text in (resources or _NOTHING).items():
        total[name] = total.get(name, ZERO) + quantity_of(text)


def _raise_to(total: dict[str, Quantity], floor: Mapping[str, Quantity]) -> None:
    for name, amount in floor.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def aggregate(spec: Obj, field: str) -> dict[str, Quantity]:
    """The total ``requests`` or ``limits`` of a pod: the sum over containers that run at the same time, or the need of
    an init container if that is larger. Sidecars count together with everything that starts after them."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, (container.get("resources") or {}).get(field))
    beside: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        resources = (container.get("resources") or {}).get(field)
        if container.get("restartPolicy") == "Always":
            _add(total, resources)
            _add(beside, resources)
            _raise_to(peak, beside)
        else:
            step = dict(beside)
            _add(step, resources)
            _raise_to(peak, step)
    _raise_to(total, peak)
    return total
