"""Charges writes to the quotas of their namespace, and counts the usage of all objects."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.kube.objects import Obj
from shoal.kube.quantity import ZERO
from shoal.kube.quota.amounts import Amounts, growth, only, parse, show, text_of, total
from shoal.kube.quota.evaluators import Evaluator, evaluator_of, resources_behind


class QuotaRefused(Exception):
    """A write exceeds a quota, which the message names."""


def selectors_of(spec: Obj) -> list[Obj]:
    """All scope selectors of a quota; an object must match all of them."""
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return scopes + ((spec.get("scopeSelector") or {}).get("matchExpressions") or [])


def matches(quota: Obj, evaluator: Evaluator, obj: Obj) -> bool:
    """Whether a quota counts this object."""
    hard = (quota.get("status") or {}).get("hard") or {}
    if not any(evaluator.tracks(name) for name in hard):
        return False
    return all(evaluator.in_scope(selector, obj) for selector in selectors_of(quota.get("spec") or {}))


def charge(
    quotas: Sequence[Obj], resource: str, new: Obj, old: Obj | None, *, now: float, enforced: bool = True
) -> dict[int, dict[str, str]]:
    """The new ``used`` of the quotas that change, by their index. Raises QuotaRefused if a quota would be exceeded;
    ``enforced`` is False for writes that only report existing usage."""
    evaluator = evaluator_of(resource)
    concerned = [index for index, quota in enumerate(quotas) if matches(quota, evaluator, new)]
    for index in concerned:
        _check_known(quotas[index], evaluator, new)
    if not concerned:
        return {}
    usage = evaluator.usage(new, now)
    negative = sorted(name for name, amount in usage.items() if amount.mantissa < 0)
    if negative:
        raise QuotaRefused(f"quota usage is negative for resource(s): {','.join(negative)}")
    more = usage if old is None else growth(usage, evaluator.usage(old, now))
    changed: dict[int, dict[str, str]] = {}
    for index in concerned:
        quota = quotas[index]
        counted_before = old is not None and matches(quota, evaluator, old)
        used = _spend(quota, more if counted_before or old is None else usage, enforced)
        if used is not None:
            changed[index] = used
    return changed


def _check_known(quota: Obj, evaluator: Evaluator, obj: Obj) -> None:
    name, status = quota["metadata"]["name"], quota["status"]
    tracked = sorted(resource for resource in status["hard"] if evaluator.tracks(resource))
    fault = evaluator.unspecified(tracked, obj)
    if fault:
        raise QuotaRefused(f"failed quota: {name}: {fault}")
    used = status.get("used") or {}
    if any(resource not in used for resource in tracked):
        raise QuotaRefused(f"status unknown for quota: {name}, resources: {','.join(tracked)}")


def _spend(quota: Obj, usage: Amounts, enforced: bool) -> dict[str, str] | None:
    """The quota's ``used`` including this; None if it is unchanged."""
    hard = parse(quota["status"]["hard"])
    wanted = {name: amount for name, amount in only(usage, hard).items() if amount}
    if not wanted:
        return None
    used = parse(quota["status"].get("used"))
    after = total(used, wanted)
    over = [name for name in wanted if after[name] > hard[name]]
    if over and enforced:
        raise QuotaRefused(
            f"exceeded quota: {quota['metadata']['name']}, requested: {text_of(wanted, over)}, "
            f"used: {text_of(used, over)}, limited: {text_of(hard, over)}"
        )
    return show(after)


class Count:
    """Adds up the usage of the objects of a namespace under a quota. Limits of unknown resources are omitted."""

    def __init__(self, spec: Obj) -> None:
        hard = spec.get("hard") or {}
        self._selectors = selectors_of(spec)
        self.resources = sorted(resources_behind(hard))
        self._names = {
            resource: {name for name in hard if evaluator_of(resource).tracks(name)} for resource in self.resources
        }
        self._used: Amounts = {name: ZERO for names in self._names.values() for name in names}

    def add(self, resource: str, obj: Obj, now: float) -> None:
        evaluator = evaluator_of(resource)
        if all(evaluator.in_scope(selector, obj) for selector in self._selectors):
            self._used = total(self._used, only(evaluator.usage(obj, now), self._names[resource]))

    def used(self) -> dict[str, str]:
        return show(self._used)
