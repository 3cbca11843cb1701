"""Runs the admission plugins in order, and caches which plugins handle which writes.

The common write concerns no dynamic plugin and few built-in ones: ``plan`` is one dictionary look-up, and None
means that no plugin handles it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from shoal.apiserver.admission.model import Admission, Charger, Dynamic, Mutator, Validator
from shoal.apiserver.body import tidy
from shoal.apiserver.registry import Served
from shoal.base.fair_lock import FairLock

_MAX_PLANS = 10_000

# Kinds that configure admission are exempt from it: otherwise a mistake in one could never be undone.
NEVER_DYNAMIC = frozenset(
    {
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    }
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plugins that handle one kind of write."""

    mutators: tuple[Mutator, ...]
    validators: tuple[Validator, ...]
    chargers: tuple[Charger, ...]
    dynamic_mutators: tuple[Dynamic, ...]
    dynamic_validators: tuple[Dynamic, ...]

    @property
    def mutates(self) -> bool:
        return bool(self.mutators or self.dynamic_mutators)

    @property
    def validates(self) -> bool:
        return bool(self.validators or self.dynamic_validators)


Plans = dict[tuple[Served, str, str], Plan | None]  # by resource, operation and subresource, filled on demand


class Chain:
    def __init__(
        self,
        *,
        plans: Plans | None = None,
        mutators: Sequence[Mutator] = (),
        validators: Sequence[Validator] = (),
        chargers: Sequence[Charger] = (),
        dynamic: Sequence[Dynamic] = (),
        spec_context: Callable[[str, str], Hashable | None] | None = None,
    ) -> None:
        """``plans`` is shared with dynamic plugins: they clear it when the results of their ``wants_*`` may change.
        ``spec_context(store key, namespace)`` returns the inputs of the built-in mutators besides the spec;
        None when they may change more than the spec."""
        self._mutators = tuple(mutators)
        self._validators = tuple(validators)
        self._chargers = tuple(chargers)
        self._dynamic = tuple(dynamic)
        self._plans: Plans = {} if plans is None else plans
        self._locks: WeakValueDictionary[str, FairLock] = WeakValueDictionary()
        self.spec_context: Callable[[str, str], Hashable | None] = spec_context or (lambda key, namespace: ())

    def plan(self, served: Served, operation: str, subresource: str) -> Plan | None:
        key = (served, operation, subresource)
        try:
            return self._plans[key]
        except KeyError:
            if len(self._plans) > _MAX_PLANS:
                self._plans.clear()  # definitions were added and removed
            plan = self._plans[key] = self._make(served, operation, subresource)
            return plan

    def _make(self, served: Served, operation: str, subresource: str) -> Plan | None:
        where = (served.key, operation, subresource)
        dynamic = () if served.key in NEVER_DYNAMIC else self._dynamic
        plan = Plan(
            tuple(plugin for plugin in self._mutators if plugin.handles(where)),
            tuple(plugin for plugin in self._validators if plugin.handles(where)),
            tuple(plugin for plugin in self._chargers if plugin.handles(where)),
            tuple(plugin for plugin in dynamic if plugin.wants_mutate(served, operation, subresource)),
            tuple(plugin for plugin in dynamic if plugin.wants_validate(served, operation, subresource)),
        )
        return plan if plan.mutates or plan.validates or plan.chargers else None

    async def mutate(self, plan: Plan, admission: Admission) -> None:
        for mutator in plan.mutators:
            mutator.mutate(admission)
        if plan.dynamic_mutators and await self._mutate_dynamic(plan, admission, again=False):
            for mutator in plan.mutators:
                mutator.mutate(admission)
            await self._mutate_dynamic(plan, admission, again=True)

    async def _mutate_dynamic(self, plan: Plan, admission: Admission, *, again: bool) -> bool:
        changed = False
        for plugin in plan.dynamic_mutators:
            if await plugin.mutate(admission, again=again):
                changed = True
                _settle(admission)
        return changed

    async def validate(self, plan: Plan, admission: Admission) -> None:
        for validator in plan.validators:
            validator.validate(admission)
        for plugin in plan.dynamic_validators:
            await plugin.validate(admission)

    def lock(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Held while a quota of this namespace is charged and the write committed."""
        return self._locks.setdefault(namespace, FairLock())


def _settle(admission: Admission) -> None:
    """Make the object that a user's plugin returned canonical again, and default the fields it added."""
    obj = admission.object
    if obj is not None and not admission.kind[2]:
        tidy(obj, admission.served)
        admission.served.default(obj)
