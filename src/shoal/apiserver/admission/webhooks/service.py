"""Webhooks as an admission plugin: follows the configurations, selects the hooks that match a write, and calls them.

Mutating hooks are asked one after the other, in the order of their configurations' names, each about the object as the
one before has left it; validating ones all at once. The hooks follow the store's configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from shoal.apiserver import objects
from shoal.apiserver.admission.model import Admission
from shoal.apiserver.admission.webhooks.client import CallFailed, HookClient
from shoal.apiserver.admission.webhooks.conditions import ConditionsFailed, Decide, Kind
from shoal.apiserver.admission.webhooks.model import MUTATING, VALIDATING, Hook, hooks_of
from shoal.apiserver.admission.webhooks.review import (
    JSON_PATCH,
    BadAnswer,
    BadPatch,
    HookResponse,
    denial,
    request_of,
    review,
    verdict,
)
from shoal.apiserver.admission.webhooks.versions import in_version
from shoal.apiserver.body import tidy
from shoal.apiserver.context import Core
from shoal.apiserver.registry import Served
from shoal.base.logs import get_logger
from shoal.base.tasks import outcomes
from shoal.errors import ApiError, BadRequest, InternalError, Timeout
from shoal.kube.objects import Obj
from shoal.kube.patch import json_patch
from shoal.store import Event, EventType, Key

_log = get_logger("webhooks")
_NOTE = "webhooks"
_TOO_LATE = "Timeout: request did not complete within requested timeout"


@dataclass(slots=True)
class _Memory:
    """State of one write between its calls to hooks."""

    deadline_s: float
    asked: set[tuple[str, str, int]] = field(default_factory=set)  # of hooks that may be called again
    to_repeat: set[tuple[str, str, int]] = field(default_factory=set)
    left: bytes = b""  # the object as the last hook left it

    def changed(self) -> None:
        """The object was changed: earlier hooks may have to be called again."""
        self.to_repeat |= self.asked
        self.asked.clear()


@dataclass(frozen=True, slots=True)
class _Question:
    """A hook to call, with the object version to send."""

    hook: Hook
    place: int  # among the hooks of its kind
    seen: Served
    request: Obj
    obj: Obj | None
    old: Obj | None


class _CallError(Exception):
    """A hook could not be called, or its response is invalid: its failure policy decides."""


class Webhooks:
    """The hooks that users have configured."""

    def __init__(
        self,
        core: Core,
        changed: Callable[[], None],
        client: HookClient,
        *,
        decide: Decide,
    ) -> None:
        """``changed`` is called when hooks may match other writes than before; ``decide`` answers authorization
        checks in match conditions."""
        self._core = core
        self._changed = changed
        self._client = client
        self._decide = decide
        self._configurations: dict[str, dict[str, tuple[Hook, ...]]] = {MUTATING: {}, VALIDATING: {}}
        self._mutating: tuple[Hook, ...] = ()
        self._validating: tuple[Hook, ...] = ()
        self._unsubscribe: list[Callable[[], None]] = []

    # -- configurations --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the configurations of the store, which must be started."""
        store = self._core.store
        for resource, known in self._configurations.items():
            self._unsubscribe.append(store.subscribe(resource, self._follow(known)))
            for entry in store.range(resource).entries:
                known[entry.key.name] = hooks_of(objects.decode(entry))
        self._settle()

    def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()

    def _follow(self, known: dict[str, tuple[Hook, ...]]) -> Callable[[Sequence[Event]], None]:
        def on_events(events: Sequence[Event]) -> None:
            for event in events:
                if event.type is EventType.DELETED:
                    known.pop(event.entry.key.name, None)
                else:
                    known[event.entry.key.name] = hooks_of(objects.decode(event.entry))
            self._settle()

        return on_events

    def _settle(self) -> None:
        self._mutating, self._validating = (
            tuple(hook for name in sorted(known) for hook in known[name]) for known in self._configurations.values()
        )
        self._changed()

    # -- the plugin ------------------------------------------------------------------------------------------------

    def wants_mutate(self, served: Served, operation: str, subresource: str) -> bool:
        return self._any(self._mutating, served, operation, subresource)

    def wants_validate(self, served: Served, operation: str, subresource: str) -> bool:
        return self._any(self._validating, served, operation, subresource)

    def _any(self, hooks: tuple[Hook, ...], served: Served, operation: str, subresource: str) -> bool:
        registry = self._core.registry
        return any(hook.match.could(served, operation, subresource, registry) for hook in hooks)

    async def mutate(self, admission: Admission, *, again: bool) -> bool:
        memory = self._memory(admission)
        if again and memory.asked and memory.left != _text(admission.object):
            memory.changed()  # another plugin has changed it since
        changed = False
        for place, hook in enumerate(self._mutating):
            if again and hook.id not in memory.to_repeat:
                continue
            question = await self._question(hook, place, admission)
            if question is None:
                continue
            try:
                done = await self._mutate_by(question, admission, memory, again=again)
            except _CallError as error:
                done = False
                self._fail(question, admission, error, memory, "mutation", again=again)
            if done:
                changed = True
                memory.changed()
            if hook.again:
                memory.asked.add(hook.id)
        if memory.asked and not again:
            memory.left = _text(admission.object)
        return changed

    async def validate(self, admission: Admission) -> None:
        memory = self._memory(admission)
        questions: list[_Question] = []
        for hook in self._validating:
            question = await self._question(hook, len(questions), admission)
            if question is not None:
                questions.append(question)
        if not questions:
            return
        if len(questions) == 1:
            await self._validate_by(questions[0], admission, memory)
            return
        asked = (self._validate_by(question, admission, memory) for question in questions)
        for outcome in await outcomes(*asked, name="webhook/validate"):
            if isinstance(outcome, BaseException):
                raise outcome

    def _memory(self, admission: Admission) -> _Memory:
        memory: _Memory | None = admission.notes.get(_NOTE)
        if memory is None:
            deadline_s = self._client.clock.monotonic() + self._client.limits.request_s
            memory = admission.notes[_NOTE] = _Memory(deadline_s)
        return memory

    # -- selection -------------------------------------------------------------------------------------------------

    async def _question(self, hook: Hook, place: int, admission: Admission) -> _Question | None:
        registry = self._core.registry
        found = hook.match.matches(admission, registry, self._namespace_labels)
        if found is None:
            return None
        seen = registry.get(*found)
        if seen is None:
            raise InternalError(f"Internal error occurred: unable to convert to {'/'.join(found)}: unknown kind")
        own = bool(admission.kind[2])  # a Scale, a Binding: the same in every version
        resource = seen.resource
        kind = admission.kind if own else (resource.group, resource.version, resource.kind)
        obj, old = admission.object, admission.old
        if not own and seen is not admission.served:
            obj = None if obj is None else await in_version(obj, admission.served, seen)
            old = None if old is None else await in_version(old, admission.served, seen)
        obj = _typed(obj, kind)
        old = _typed(old, ("", "", "") if own else kind)
        if hook.conditions and not self._conditions_hold(hook, admission, kind, found, obj, old):
            return None
        return _Question(hook, place, seen, request_of(admission, kind, found), obj, old)

    def _namespace_labels(self, name: str) -> Mapping[str, str] | None:
        entry = self._core.store.get(Key("namespaces", "", name))
        return None if entry is None else entry.attrs.labels

    def _conditions_hold(
        self, hook: Hook, admission: Admission, kind: Kind, resource: Kind, obj: Obj | None, old: Obj | None
    ) -> bool:
        clock, deadline_s = self._client.clock, self._memory(admission).deadline_s
        try:
            return hook.conditions.hold(
                admission, kind, resource, obj, old,
                decide=self._decide, interrupted=lambda: clock.monotonic() > deadline_s,
            )  # fmt: skip
        except ConditionsFailed as failed:
            if hook.ignores_failure:
                return False
            raise admission.denied(str(failed)) from None

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _ask(self, question: _Question, admission: Admission, memory: _Memory, *, mutating: bool) -> HookResponse:
        """The hook's response, after its warnings and annotations were recorded. A rejection is raised."""
        hook, client = question.hook, self._client
        if admission.dry_run and not hook.dry_run:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        if not hook.version:
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise _CallError(f"could not create admission objects: {known}")
        left_s = memory.deadline_s - client.clock.monotonic()
        if left_s <= 0:
            raise Timeout(_TOO_LATE)
        uid = self._core.ids.new_uid()
        body = review(hook.version, uid, question.request, question.obj, question.old)
        try:
            answer = await client.post(hook.target, body, min(hook.timeout_s, left_s))
        except CallFailed as failed:
            raise _CallError(f"failed to call webhook: {failed}") from failed
        try:
            found = verdict(answer, hook.version, uid, mutating=mutating)
        except BadAnswer as bad:
            raise _CallError(f"received invalid webhook response: {bad}") from None
        except BadPatch as bad:
            raise _CallError(str(bad)) from None
        admission.warnings.extend(found.warnings)
        for name, value in found.annotations.items():
            admission.annotations.setdefault(f"{hook.name}/{name}", value)
        if not found.allowed:
            raise denial(hook.name, found.status)
        return found

    def _fail(
        self, question: _Question, admission: Admission, error: _CallError, memory: _Memory, what: str, *, again: bool
    ) -> None:
        """A call failed: ignore it or reject the write, as the hook's failure policy says."""
        hook = question.hook
        text = f'failed calling webhook "{hook.name}": {error}'
        _log.warning(
            "call failed", configuration=hook.configuration, webhook=hook.name, ignored=hook.ignores_failure,
            error=str(error),
        )  # fmt: skip
        if not hook.ignores_failure:
            raise InternalError(f"Internal error occurred: {text}", causes=[{"message": text}]) from error
        admission.annotations.setdefault(f"failed-open.{_annotation(what, question, again=again)}", hook.name)
        if memory.deadline_s <= self._client.clock.monotonic():
            raise Timeout(_TOO_LATE)

    async def _validate_by(self, question: _Question, admission: Admission, memory: _Memory) -> None:
        try:
            await self._ask(question, admission, memory, mutating=False)
        except _CallError as error:
            self._fail(question, admission, error, memory, "validating", again=False)

    async def _mutate_by(self, question: _Question, admission: Admission, memory: _Memory, *, again: bool) -> bool:
        hook, changed = question.hook, False
        try:
            patch = (await self._ask(question, admission, memory, mutating=True)).patch
            if not patch:
                return False
            if question.obj is None:
                raise InternalError(
                    f'Internal error occurred: admission webhook "{hook.name}" attempted to modify the object, '
                    "which is not supported for this operation"
                )
            patched = _patched(question.obj, patch)
            changed = patched != question.obj
            _note(admission, "patch", question, again, {"patch": patch, "patchType": JSON_PATCH})
            if changed:
                admission.object = await self._taken_over(patched, question, admission)
            return changed
        finally:
            _note(admission, "mutation", question, again, {"mutated": changed})

    async def _taken_over(self, patched: Obj, question: _Question, admission: Admission) -> Obj:
        """The object after a hook's patch, canonical and with defaults, in the version of the request."""
        if admission.kind[2]:
            return patched
        try:
            tidy(patched, question.seen)
            question.seen.rules.default(patched)
        except ApiError as error:
            raise InternalError(f"Internal error occurred: {error.message}") from None
        return await in_version(patched, question.seen, admission.served)


def _patched(obj: Obj, patch: list[Any]) -> Obj:
    try:
        patched = json_patch.apply(obj, patch)
    except ApiError as error:
        why = "; ".join(cause.get("message", "") for cause in error.causes) or error.message
        raise InternalError(f"Internal error occurred: {why}") from None
    if not isinstance(patched, dict):
        raise InternalError("Internal error occurred: the patched document is not an object")
    return patched


def _typed(obj: Obj | None, kind: tuple[str, str, str]) -> Obj | None:
    """The object with kind and apiVersion, which objects sent to a hook always have."""
    if obj is None or not kind[2] or ("kind" in obj and "apiVersion" in obj):
        return obj
    group, version, name = kind
    return {"kind": name, "apiVersion": f"{group}/{version}" if group else version, **obj}


def _note(admission: Admission, what: str, question: _Question, again: bool, more: Obj) -> None:
    """Record in the audit log whether a hook changed the object."""
    noted = {"configuration": question.hook.configuration, "webhook": question.hook.name, **more}
    admission.annotations.setdefault(_annotation(what, question, again=again), _text(noted).decode())


def _annotation(what: str, question: _Question, *, again: bool) -> str:
    return f"{what}.webhook.admission.k8s.io/round_{int(again)}_index_{question.place}"


def _text(value: Any) -> bytes:
    return orjson.dumps(value)
