"""Server-side apply: a manager sends the fields that it wants, and then owns exactly these.

The applied configuration is merged into the stored object. A change of a field that another manager owns is a conflict,
unless the request has ``force``. Fields that this manager applied before and no longer does are removed if no other
manager owns them. The caller sets defaults afterwards; no manager owns them.
"""

from __future__ import annotations

from typing import Any

from shoal.errors import BadRequest, Conflict
from shoal.kube import decode
from shoal.kube.jsonutil import deep_copy
from shoal.kube.ownership import fieldset, last_applied
from shoal.kube.ownership.compare import Comparison, applied_fields, compare, fields_of
from shoal.kube.ownership.elements import field_type, identifier, is_leaf
from shoal.kube.ownership.fieldset import FieldSet
from shoal.kube.ownership.managed import (
    APPLY,
    UPDATE,
    ManagedFieldsEntry,
    ManagerId,
    Managers,
    encode,
    fit_managers,
    manager_id,
    remove_fields,
)
from shoal.kube.ownership.managed import decode as decode_managers
from shoal.kube.ownership.merge import GONE, merge, remove, with_named_fields
from shoal.kube.schema.model import Form, Type

BEFORE_FIRST_APPLY = "before-first-apply"
_UNTYPED = "failed to create typed patch object"
_NO_KEYS = "associative list with keys has an element that omits all key fields"
# Every configuration contains the fields that identify the object.
_IDENTITY: FieldSet = {"f:apiVersion": {}, "f:kind": {}, "f:metadata": {}}


def prepare(applied: dict[str, Any], type_: Type) -> None:
    """Check and canonicalise a configuration from a client; raises ``BadRequest`` if it cannot be applied."""
    metadata = applied.get("metadata")
    if metadata.__class__ is dict and metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    unknown = decode.normalize(applied, type_, keep_zeros=True)
    if unknown:
        path = unknown[0].removeprefix('unknown field "').removesuffix('"')
        raise BadRequest(f"{_UNTYPED} ({_name_of(applied)}): .{path}: field not declared in schema")
    try:
        _check_items(applied, type_)
    except _BadItem as bad:
        path = "".join(map(fieldset.element_text, reversed(bad.elements)))
        raise BadRequest(f"{_UNTYPED} ({_name_of(applied)}): {path}: {bad}") from None


def _name_of(obj: dict[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    return f"{name}; {obj.get('apiVersion')}, Kind={obj.get('kind')}"


class _BadItem(Exception):
    """An item of an associative list without a unique key; collects its path, innermost first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.elements: list[str] = []


def _check_items(value: Any, type_: Type) -> None:
    """A configuration must not contain an item of an associative list twice, or one without its keys."""
    element = ""
    try:
        if value.__class__ is list:
            identify = identifier(type_)
            seen: set[str] = set()
            for item in value:
                element = identify(item)
                if element == "k:{}":
                    raise _BadItem(f"element {len(seen)}: {_NO_KEYS}")
                if element in seen:
                    raise _BadItem(f"duplicate entries for key {fieldset.element_text(element)}")
                seen.add(element)
                if item.__class__ is dict and not is_leaf(type_.element):
                    _check_items(item, type_.element)
        else:
            for key, item in value.items():
                if item.__class__ is dict or item.__class__ is list:
                    inner = field_type(type_, key)
                    if inner.form is not Form.ANY and not is_leaf(inner):
                        element = f"f:{key}"
                        _check_items(item, inner)
    except _BadItem as bad:
        if bad.elements or element[0] == "f":
            bad.elements.append(element)
        raise


def apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    type_: Type,
    *,
    manager: str,
    force: bool,
    now: str,
    api_version: str,
    subresource: str = "",
    reset_fields: FieldSet | None = None,
) -> dict[str, Any]:
    """Apply a prepared configuration to ``live``; return the new object with its managedFields.

    ``live`` is not changed; parts of ``applied`` become parts of the result. Raises ``Conflict`` if fields of other
    managers would change and the request has no ``force``.
    """
    request = _Request(type_, manager, api_version, subresource, now, reset_fields)
    if live is None:
        return request.create(applied)
    if manager != last_applied.KUBECTL or force:
        try:
            return request.update(live, applied, force=force)
        except _Conflicts as conflicts:
            raise conflicts.as_error() from None
    return _apply_as_kubectl(request, live, applied)


def _apply_as_kubectl(request: _Request, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Apply without force, but take over the fields that client-side apply owns."""
    try:
        return request.update(live, deep_copy(applied), force=False)
    except _Conflicts as conflicts:
        conflicts.drop(last_applied.owned_fields(live, request.type, request.api_version))
        if conflicts.by_manager:
            raise conflicts.as_error() from None
        return request.update(live, applied, force=True)


class _Request:
    """One apply request, apart from the objects."""

    def __init__(
        self,
        type_: Type,
        manager: str,
        api_version: str,
        subresource: str,
        now: str,
        reset_fields: FieldSet | None,
    ) -> None:
        self.type = type_
        self.api_version = api_version
        self.now = now
        self.reset_fields = reset_fields
        self.subresource = subresource
        self.manager = manager
        self.id = manager_id(manager, APPLY, api_version, subresource)

    def create(self, applied: dict[str, Any]) -> dict[str, Any]:
        fields = self._tracked(applied_fields(applied, self.type))
        self._store(applied, {self.id: ManagedFieldsEntry(fields, self.api_version, self.now)} if fields else {})
        return applied

    def update(self, live: dict[str, Any], applied: dict[str, Any], *, force: bool) -> dict[str, Any]:
        managers = self._managers_of(live)
        last = managers.get(self.id)
        fields = self._tracked(applied_fields(applied, self.type))
        synced = last_applied.text_of(applied) if self.manager == last_applied.KUBECTL else ""
        merged: dict[str, Any] = deep_copy(live)
        merged["metadata"].pop("managedFields", None)
        merge(merged, applied, self.type)
        managers[self.id] = ManagedFieldsEntry(fields, self.api_version, self.now)
        if last is not None and last.fields != fields and fieldset.difference(last.fields, fields):
            merged = self._pruned(merged, last.fields, managers)
        changes = compare(live, merged, self.type)
        self._settle(managers, changes, force=force)
        if last is not None and not (changes.changed or changes.removed) and last.fields == fields:
            managers[self.id] = last._replace(api_version=self.api_version)
        if not fields:
            del managers[self.id]
        if synced:
            last_applied.sync(merged, synced)
        self._store(merged, managers)
        return merged

    def _managers_of(self, live: dict[str, Any]) -> Managers:
        managers = decode_managers(live["metadata"].get("managedFields"))
        fit_managers(managers, self.type)
        if not managers:
            fields = self._tracked(fields_of(live, self.type))
            if fields:
                identity = manager_id(BEFORE_FIRST_APPLY, UPDATE, self.api_version, self.subresource)
                managers[identity] = ManagedFieldsEntry(fields, self.api_version, self.now)
        return managers

    def _tracked(self, fields: FieldSet) -> FieldSet:
        return fieldset.recursive_difference(fields, self.reset_fields) if self.reset_fields else fields

    def _pruned(self, merged: dict[str, Any], last: FieldSet, managers: Managers) -> dict[str, Any]:
        """``merged`` without the fields that this manager applied last time and no manager owns now.

        Removing an item removes everything in it, so there are three steps: remove everything that was applied, restore
        owned fields, then remove from the object the fields that are still missing and were applied.
        """
        type_ = self.type

        def members(obj: Any) -> FieldSet:
            return with_named_fields(applied_fields(obj, type_), type_) if obj is not GONE else {}

        everything = members(merged)
        stated = with_named_fields(last, type_)
        owned: FieldSet = _IDENTITY
        for entry in managers.values():
            owned = fieldset.union(owned, entry.fields)
        kept = fieldset.union(members(remove(merged, type_, stated)), with_named_fields(owned, type_))
        remaining = members(remove(merged, type_, fieldset.difference(everything, kept)))
        doomed = fieldset.intersection(fieldset.difference(everything, remaining), stated)
        result = remove(merged, type_, fieldset.difference(doomed, _IDENTITY))
        return {} if result is GONE else result

    def _settle(self, managers: Managers, changes: Comparison, *, force: bool) -> None:
        """With ``force``, remove changed fields from other managers; otherwise raise the conflicts."""
        changed, removed = changes
        if self.reset_fields:
            changed = fieldset.recursive_difference(changed, self.reset_fields)
            removed = fieldset.recursive_difference(removed, self.reset_fields)
        if not force and changed:
            conflicts = {
                identity: overlap
                for identity, entry in managers.items()
                if identity != self.id and (overlap := fieldset.intersection(entry.fields, changed))
            }
            if conflicts:
                raise _Conflicts({who: (managers[who].api_version, what) for who, what in conflicts.items()})
        if changed or removed:
            remove_fields(managers, changed, removed, but=self.id)

    def _store(self, obj: dict[str, Any], managers: Managers) -> None:
        metadata = obj.setdefault("metadata", {})
        if managers:
            metadata["managedFields"] = encode(managers)
        else:
            metadata.pop("managedFields", None)


class _Conflicts(Exception):
    """Fields of other managers that an apply would change."""

    def __init__(self, by_manager: dict[ManagerId, tuple[str, FieldSet]]) -> None:
        super().__init__("conflicts")
        self.by_manager = by_manager

    def drop(self, fields: FieldSet) -> None:
        """Drop the conflicts about ``fields``."""
        left = {who: (version, fieldset.difference(what, fields)) for who, (version, what) in self.by_manager.items()}
        self.by_manager = {who: rest for who, rest in left.items() if rest[1]}

    def as_error(self) -> Conflict:
        listed = [
            (_manager_text(identity, version), list(fieldset.iterate(fields)))
            for identity, (version, fields) in sorted(self.by_manager.items())
        ]
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path}
            for who, paths in listed
            for path in paths
        ]
        if len(causes) == 1:
            text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
        else:
            lines = [line for who, paths in listed for line in (f"conflicts with {who}:", *(f"- {p}" for p in paths))]
            text = f"{len(causes)} conflicts: " + "\n".join(lines)
        return Conflict(f"Apply failed with {text}", causes=causes)


def _manager_text(identity: ManagerId, api_version: str) -> str:
    text = f'"{identity.manager}"'
    if identity.subresource:
        text += f' with subresource "{identity.subresource}"'
    return f"{text} using {api_version}" if identity.operation == UPDATE else text
