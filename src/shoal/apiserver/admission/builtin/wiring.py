"""The built-in plugins in the order in which they run, with the caches they use."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from shoal.apiserver.admission.builtin.default_classes import (
    DefaultIngressClass,
    DefaultStorageClass,
    PersistentVolumeClaimResize,
    ingress_classes,
    storage_classes,
)
from shoal.apiserver.admission.builtin.limit_ranger import LimitRanger
from shoal.apiserver.admission.builtin.new_nodes import TaintNodesByCondition
from shoal.apiserver.admission.builtin.owner_references import Authorizes, OwnerReferencesPermissionEnforcement
from shoal.apiserver.admission.builtin.pod_security import PodSecurity
from shoal.apiserver.admission.builtin.priority import OneDefaultPriorityClass, Priority
from shoal.apiserver.admission.builtin.resource_quota import ResourceQuota
from shoal.apiserver.admission.builtin.runtime_class import RuntimeClass
from shoal.apiserver.admission.builtin.service_account import ServiceAccount, ServiceAccountRules
from shoal.apiserver.admission.builtin.storage_protection import StorageObjectInUseProtection
from shoal.apiserver.admission.builtin.tolerations import DefaultTolerationSeconds
from shoal.apiserver.admission.model import Charger, Mutator, Validator
from shoal.apiserver.context import Core

_NOTHING_BESIDE: Final = ()


class BuiltIn:
    """The built-in plugins that ``Chain`` runs."""

    def __init__(self, core: Core, owners: Authorizes | None) -> None:
        limits, accounts, security = LimitRanger(core), ServiceAccount(core), PodSecurity(core)
        priority, runtimes, quotas = Priority(core), RuntimeClass(core), ResourceQuota(core)
        storage, ingress = storage_classes(core), ingress_classes(core)
        self.mutators: tuple[Mutator, ...] = (
            limits, accounts, TaintNodesByCondition(), priority, DefaultTolerationSeconds(),
            DefaultStorageClass(storage), StorageObjectInUseProtection(), runtimes, DefaultIngressClass(ingress),
        )  # fmt: skip
        enforcement = [] if owners is None else [OwnerReferencesPermissionEnforcement(core, owners)]
        self.validators: tuple[Validator, ...] = (
            limits, ServiceAccountRules(accounts), security, OneDefaultPriorityClass(priority), *enforcement,
            PersistentVolumeClaimResize(storage), runtimes,
        )  # fmt: skip
        self.chargers: tuple[Charger, ...] = (quotas,)
        self._limits, self._accounts, self._priority, self._runtimes = limits, accounts, priority, runtimes
        self._caches = (limits, accounts, security, priority, storage, ingress, runtimes, quotas)

    def start(self) -> None:
        """Load the caches and follow the store, which must be started."""
        for cache in self._caches:
            cache.start()

    def spec_context(self, key: str, namespace: str) -> Hashable | None:
        """The inputs of the mutators besides the spec; None when they may change more than the spec."""
        if key != "pods":
            return _NOTHING_BESIDE
        if self._limits.limits(namespace):
            return None  # LimitRanger also writes annotations
        return self._accounts.look(namespace), self._priority.version, self._runtimes.version


def builtin_chain(core: Core, *, authorizer: Authorizes | None = None) -> BuiltIn:
    """The plugins that are on by default; ``authorizer`` also switches the one on that guards owner references."""
    return BuiltIn(core, authorizer)
