"""Policies as an admission plugin: follows the stored policies, selects those that match a write, and runs them.

Policies and bindings follow the store. A write that no policy in force can match is not passed here: see
``wants_*``. Policies run in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from shoal.apiserver import objects
from shoal.apiserver.admission.model import Admission
from shoal.apiserver.admission.policies.model import (
    MUTATING,
    MUTATING_BINDINGS,
    VALIDATING,
    VALIDATING_BINDINGS,
    AdmissionPolicy,
    Misconfigured,
    PolicyBinding,
)
from shoal.apiserver.admission.policies.params import collect, kind_of
from shoal.apiserver.admission.policies.refusals import Audit, MutationRefusal, ValidationRefusal
from shoal.apiserver.admission.webhooks.versions import in_version
from shoal.apiserver.context import Core
from shoal.apiserver.registry import Served
from shoal.base.clock import Clock
from shoal.errors import ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.kube.schema import Type, type_of_kind
from shoal.store import Event, EventType, Key

if TYPE_CHECKING:
    from shoal.apiserver.admission.policies.expressions import WriteSubject
    from shoal.apiserver.admission.policies.mutating import MutationMemory
    from shoal.kube.cel.library.authorization import Decide

_PATIENCE_S = 2.0  # for all expressions of one write together: the loop waits for them
_NOTE = "policies"
_MAX_CHOICES = 10_000
_MAX_NAMESPACES = 1_000
Choice = tuple[AdmissionPolicy, tuple[PolicyBinding, ...]]


class _Configured:
    """The policies of one kind with their bindings, in the order of their names."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._policies: dict[str, AdmissionPolicy] = {}
        self._bindings: dict[str, PolicyBinding] = {}
        self._in_force: tuple[AdmissionPolicy, ...] = ()
        self._choices: dict[tuple[Served, str, str], tuple[Choice, ...]] = {}
        self._version = -1

    def put_policy(self, obj: Obj) -> None:
        """Add or replace a policy. A change of only the status keeps the compiled expressions."""
        name = obj["metadata"]["name"]
        known = self._policies.get(name)
        if known is None or known.obj.get("spec") != obj.get("spec"):
            self._policies[name] = AdmissionPolicy(obj)

    def put_binding(self, obj: Obj) -> None:
        self._bindings[obj["metadata"]["name"]] = PolicyBinding(obj)

    def drop_policy(self, name: str) -> None:
        self._policies.pop(name, None)

    def drop_binding(self, name: str) -> None:
        self._bindings.pop(name, None)

    def settle(self) -> None:
        """Assign bindings to their policies; a policy without any is not in force."""
        bound: dict[str, list[PolicyBinding]] = {}
        for name in sorted(self._bindings):
            binding = self._bindings[name]
            bound.setdefault(binding.policy_name, []).append(binding)
        for name, policy in self._policies.items():
            policy.bindings = tuple(bound.get(name, ()))
        self._in_force = tuple(self._policies[name] for name in sorted(self._policies) if name in bound)
        self._choices.clear()

    def choices(self, served: Served, operation: str, subresource: str) -> tuple[Choice, ...]:
        """Policies that such a write could match, each with the bindings that could."""
        if not self._in_force:
            return ()
        registry = self._core.registry
        if self._version != registry.version or len(self._choices) > _MAX_CHOICES:
            self._choices.clear()
            self._version = registry.version
        where = (served, operation, subresource)
        found = self._choices.get(where)
        if found is None:
            found = self._choices[where] = tuple(
                (policy, bindings)
                for policy in self._in_force
                if policy.match.could(*where, registry)
                and (bindings := tuple(each for each in policy.bindings if each.match.could(*where, registry)))
            )
        return found


class Policies:
    """The policies that users have configured."""

    def __init__(
        self, core: Core, chain_changed: Callable[[], None], *, authorizer_decide: Decide, clock: Clock | None = None
    ) -> None:
        """``chain_changed`` is called when policies may match other writes than before; ``authorizer_decide``
        answers authorization checks in expressions."""
        self._core = core
        self._changed = chain_changed
        self._decide = authorizer_decide
        self._clock = clock or core.clock
        self._validating = _Configured(core)
        self._mutating = _Configured(core)
        self._namespaces: dict[str, tuple[int, Obj]] = {}  # revision, and what expressions see
        self._unsubscribe: list[Callable[[], None]] = []

    # -- configuration ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the policies of the store, which must be started."""
        for resource, put, drop in (
            (VALIDATING, self._validating.put_policy, self._validating.drop_policy),
            (VALIDATING_BINDINGS, self._validating.put_binding, self._validating.drop_binding),
            (MUTATING, self._mutating.put_policy, self._mutating.drop_policy),
            (MUTATING_BINDINGS, self._mutating.put_binding, self._mutating.drop_binding),
        ):
            self._unsubscribe.append(self._core.store.subscribe(resource, self._follower(put, drop)))
            for entry in self._core.store.range(resource).entries:
                put(objects.decode(entry))
        self._settle()

    def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()

    def _follower(self, put: Callable[[Obj], None], drop: Callable[[str], None]) -> Callable[[Sequence[Event]], None]:
        def on_events(events: Sequence[Event]) -> None:
            for event in events:
                if event.type is EventType.DELETED:
                    drop(event.entry.key.name)
                else:
                    put(objects.decode(event.entry))
            self._settle()

        return on_events

    def _settle(self) -> None:
        self._validating.settle()
        self._mutating.settle()
        self._changed()

    # -- the plugin ------------------------------------------------------------------------------------------------

    def wants_mutate(self, served: Served, operation: str, subresource: str) -> bool:
        return bool(self._mutating.choices(served, operation, subresource))

    def wants_validate(self, served: Served, operation: str, subresource: str) -> bool:
        return bool(self._validating.choices(served, operation, subresource))

    async def validate(self, admission: Admission) -> None:
        refusal, audit = ValidationRefusal(admission), Audit(admission)
        subjects = _Subjects(self, admission)
        for policy, bindings in self._choices_of(self._validating, admission):
            try:
                seen = policy.match.matches(admission, self._core.registry, self._namespace_labels)
                if seen is None:
                    continue
                self._check(policy)
            except (Misconfigured, NotFound) as error:
                refusal.misconfigured(policy, None, error)
                continue
            audit.begin(policy)
            for binding in bindings:
                try:
                    found = await self._params(admission, policy, binding)
                    if not found:
                        continue
                    subject = await subjects.get(seen)
                except (Misconfigured, NotFound) as error:
                    refusal.misconfigured(policy, binding, error)
                    continue
                for params in found:
                    outcome = policy.validation.find(subject, params)
                    refusal.add(policy, binding, outcome)
                    audit.add(policy, binding, outcome)
            audit.publish(policy)
        audit.publish_failures()
        refusal.raise_if_any()

    async def mutate(self, admission: Admission, *, again: bool) -> bool:
        if admission.object is None:
            return False
        memory = _memory(admission)
        if again and memory.left != _text(admission.object):
            memory.changed()
        refusal = MutationRefusal(admission)
        changed = False
        for policy, binding, seen, found in await self._invocations(admission, refusal):
            for params in found:
                if await self._mutate_once(admission, memory, refusal, (policy, binding, seen, params), again=again):
                    changed = True
                    memory.changed()
                if policy.mutation.repeats:
                    memory.done.add(_place(policy, binding, params))
        memory.left = _text(admission.object)
        refusal.raise_if_any()
        return changed

    async def _invocations(
        self, admission: Admission, refusal: MutationRefusal
    ) -> list[tuple[AdmissionPolicy, PolicyBinding, tuple[str, str, str], list[Obj | None]]]:
        """The policies to run; selected before any of them changes the object."""
        made = []
        for policy, bindings in self._choices_of(self._mutating, admission):
            try:
                seen = policy.match.matches(admission, self._core.registry, self._namespace_labels)
                if seen is None:
                    continue
                self._check(policy)
            except (Misconfigured, NotFound) as error:
                refusal.misconfigured(policy, None, error)
                continue
            for binding in bindings:
                try:
                    found = await self._params(admission, policy, binding)
                except (Misconfigured, NotFound) as error:
                    refusal.misconfigured(policy, binding, error)
                    continue
                if found:
                    made.append((policy, binding, seen, found))
        return made

    async def _mutate_once(
        self,
        admission: Admission,
        memory: MutationMemory,
        refusal: MutationRefusal,
        invocation: tuple[AdmissionPolicy, PolicyBinding, tuple[str, str, str], Obj | None],
        *,
        again: bool,
    ) -> bool:
        from shoal.apiserver.admission.policies.expressions import ExpressionFailed
        from shoal.apiserver.admission.policies.patches import check_known

        policy, binding, seen, params = invocation
        subjects = _Subjects(self, admission)
        subject = await subjects.get(seen)
        try:
            if not policy.mutation.concerns(subject, params):
                return False
        except ExpressionFailed as error:
            refusal.add(policy, binding, str(error))
            return False
        if again and _place(policy, binding, params) not in memory.to_repeat:
            return False
        served = subjects.served(seen)
        type_ = _type_of(admission, served)

        def settle(obj: Obj, strict: bool) -> None:
            if strict and served.crd is None:
                check_known(obj, type_)
            if not admission.kind[2]:
                if served.crd is not None:
                    served.crd.normalize(obj)
                served.default(obj)

        before = _text(subject.obj)
        for fault in policy.mutation.apply(subject, params, type_, settle):
            refusal.add(policy, binding, fault)
        if subject.obj is None or _text(subject.obj) == before:
            return False
        if served is not admission.served and not admission.kind[2]:
            subject.obj = await in_version(subject.obj, served, admission.served)
        admission.object = subject.obj
        return True

    # -- shared ----------------------------------------------------------------------------------------------------

    def _choices_of(self, configured: _Configured, admission: Admission) -> tuple[Choice, ...]:
        return configured.choices(admission.served, admission.operation, admission.subresource)

    def _check(self, policy: AdmissionPolicy) -> None:
        if policy.param_kind is not None:
            kind_of(self._core, policy.param_kind)

    async def _params(self, admission: Admission, policy: AdmissionPolicy, binding: PolicyBinding) -> list[Obj | None]:
        """The parameters to evaluate the policy with; none if the binding does not match."""
        if binding.match.matches(admission, self._core.registry, self._namespace_labels) is None:
            return []
        return await collect(self._core, policy, binding, _namespace_of(admission))

    def namespace(self, name: str) -> Obj:
        """A namespace as expressions see it, made once per revision."""
        from shoal.kube.cel.admission import namespace_value

        entry = self._core.store.get(Key("namespaces", "", name))
        if entry is None:
            raise NotFound.of("namespaces", "", name)
        revision, value = self._namespaces.get(name, (0, {}))
        if revision != entry.revision:
            if len(self._namespaces) > _MAX_NAMESPACES:
                self._namespaces.clear()
            value = namespace_value(objects.decode(entry))
            self._namespaces[name] = entry.revision, value
        return value

    def _namespace_labels(self, name: str) -> Mapping[str, str] | None:
        entry = self._core.store.get(Key("namespaces", "", name))
        return None if entry is None else entry.attrs.labels

    def deadline(self) -> Callable[[], bool]:
        """Whether the time for the expressions of a write is over."""
        monotonic = self._clock.monotonic
        end = monotonic() + _PATIENCE_S
        return lambda: monotonic() > end

    @property
    def core(self) -> Core:
        return self._core

    @property
    def decide(self) -> Decide:
        return self._decide


class _Subjects:
    """The object of a write in each version that a policy asks for, converted once."""

    def __init__(self, policies: Policies, admission: Admission) -> None:
        self._policies = policies
        self._admission = admission
        self._made: dict[tuple[str, str, str], WriteSubject] = {}
        self._interrupted = policies.deadline()

    def served(self, seen: tuple[str, str, str]) -> Served:
        return self._policies.core.registry.get(*seen) or self._admission.served

    async def get(self, seen: tuple[str, str, str]) -> WriteSubject:
        from shoal.apiserver.admission.policies.expressions import WriteSubject

        known = self._made.get(seen)
        if known is None:
            admission, served = self._admission, self.served(seen)
            obj, old, kind = admission.object, admission.old, admission.gvk
            if served is not admission.served and not admission.kind[2]:
                kind = (served.resource.group, served.resource.version, served.resource.kind)
                try:
                    obj = None if obj is None else await in_version(obj, admission.served, served)
                    old = None if old is None else await in_version(old, admission.served, served)
                except ApiError as error:
                    raise Misconfigured(f"failed to convert object version: {error.message}") from None
            elif obj is not None and "kind" not in obj:  # subresources do not ask for it
                group, version, name = kind
                obj = {**obj, "kind": name, "apiVersion": f"{group}/{version}" if group else version}
            known = self._made[seen] = WriteSubject(
                admission, kind, seen, obj, old,
                namespace=self._namespace, decide=self._policies.decide, interrupted=self._interrupted,
            )  # fmt: skip
        return known

    def _namespace(self) -> Obj | None:
        admission = self._admission
        if admission.served.key == "namespaces" or not admission.namespace:
            return None
        return self._policies.namespace(admission.namespace)


def _memory(admission: Admission) -> MutationMemory:
    from shoal.apiserver.admission.policies.mutating import MutationMemory

    memory: MutationMemory = admission.notes.setdefault(_NOTE, MutationMemory())
    return memory


def _place(policy: AdmissionPolicy, binding: PolicyBinding, params: Obj | None) -> tuple[str, str, str, str]:
    metadata = (params or {}).get("metadata") or {}
    return policy.name, binding.name, metadata.get("namespace") or "", metadata.get("name") or ""


def _namespace_of(admission: Admission) -> str:
    """The namespace of a write; a namespace is in itself."""
    return admission.name if admission.served.key == "namespaces" else admission.namespace


def _type_of(admission: Admission, served: Served) -> Type:
    return type_of_kind(*admission.kind) if admission.kind[2] else served.type


def _text(obj: Obj | None) -> bytes:
    return b"" if obj is None else orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
