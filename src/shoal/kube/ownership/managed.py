"""The entries of ``metadata.managedFields`` and how writes other than apply change them.

An entry is identified by manager, operation and subresource, and an Update also by its API version. The fields a
write changes go to the entry of its manager; every other entry loses them. Entries of other API versions are treated
as if their fields had the same names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shoal.kube.ownership import fieldset
from shoal.kube.ownership.compare import compare, fields_of
from shoal.kube.ownership.elements import fit_to_schema, is_built_in
from shoal.kube.ownership.fieldset import FieldSet
from shoal.kube.schema.model import Type

UPDATE = "Update"
APPLY = "Apply"
MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
UNKNOWN_MANAGER = "unknown"


class ManagerId(NamedTuple):
    """The identity of an entry."""

    manager: str
    operation: str
    api_version: str  # empty for Apply: a manager that applies in another version stays the same manager
    subresource: str


class ManagedFieldsEntry(NamedTuple):
    """The rest of an entry."""

    fields: FieldSet
    api_version: str
    time: str


Managers = dict[ManagerId, ManagedFieldsEntry]


def manager_id(manager: str, operation: str, api_version: str, subresource: str = "") -> ManagerId:
    return ManagerId(manager or UNKNOWN_MANAGER, operation, "" if operation == APPLY else api_version, subresource)


def decode(entries: Any, *, trusted: bool = True) -> Managers:
    """The managers of a managedFields list; raises ``ValueError`` if it is invalid.

    ``trusted`` entries were written by ``encode`` and are not checked.
    """
    managers: Managers = {}
    for entry in entries or ():
        operation, api_version = entry.get("operation"), entry.get("apiVersion")
        if operation != UPDATE and operation != APPLY:
            raise ValueError("operation must be `Apply` or `Update`")
        if not api_version:
            raise ValueError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r}")
        fields = entry.get("fieldsV1") or {}
        identity = ManagerId(
            entry.get("manager") or "",
            operation,
            "" if operation == APPLY else api_version,
            entry.get("subresource") or "",
        )
        managers[identity] = ManagedFieldsEntry(
            fields if trusted else fieldset.from_json(fields), api_version, entry.get("time") or ""
        )
    return managers


def encode(managers: Managers) -> list[dict[str, Any]]:
    """The managedFields list: Apply entries first, then by time."""
    if len(managers) > 1:
        ordered = sorted(managers.items(), key=_order)
    else:
        ordered = list(managers.items())
    entries = []
    for (manager, operation, _, subresource), (fields, api_version, time) in ordered:
        entry: dict[str, Any] = {"manager": manager, "operation": operation, "apiVersion": api_version}
        if time:
            entry["time"] = time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = fields
        if subresource:
            entry["subresource"] = subresource
        entries.append(entry)
    return entries


def _order(item: tuple[ManagerId, ManagedFieldsEntry]) -> tuple[str, str, str, str, str]:
    identity, entry = item
    return identity.operation, entry.time, identity.manager, entry.api_version, identity.subresource


def update_managers(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    type_: Type,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset_fields: FieldSet | None = None,
    known: FieldSet | None = None,
) -> None:
    """Set ``metadata.managedFields`` of ``new``, which a create, update or patch is about to store.

    ``old`` is the stored object, ``None`` for a create. ``now`` is a Time. ``reset_fields`` are the fields this
    endpoint does not write (``status`` on the main resource); their owners do not change. ``known`` are fields of
    parts that the caller removed from ``new`` because their fields are already known.
    """
    metadata = new.setdefault("metadata", {})
    requested = metadata.pop("managedFields", None)
    live = None if old is None else (old.get("metadata") or {}).get("managedFields")
    managers = _starting_point(live, requested, ignore_requested=bool(subresource))
    fit_managers(managers, type_)
    removed: FieldSet = {}
    if old is None:
        changed = fields_of(new, type_)
        if known:
            changed = {**changed, **known}
    elif not managers:
        return  # no manager is tracked, and tracking starts only at a create or an apply
    else:
        changed, removed = compare(old, new, type_)
    if reset_fields:
        changed = fieldset.recursive_difference(changed, reset_fields)
        removed = fieldset.recursive_difference(removed, reset_fields)
    if changed or removed:
        remove_fields(managers, changed, removed)
    if changed:
        _add_fields(managers, manager_id(manager, UPDATE, api_version, subresource), changed, api_version, now)
        cap_update_managers(managers)
    if managers:
        metadata["managedFields"] = encode(managers)


def _starting_point(live: Any, requested: Any, *, ignore_requested: bool) -> Managers:
    """The managers before this write: those of the request if it may set them, else the stored ones."""
    if requested is not None and not ignore_requested and requested != live:
        if is_reset(requested):
            return {}
        try:
            managers = decode(requested, trusted=False)
            if managers:
                return managers
        except (ValueError, AttributeError, TypeError):
            pass  # clients that do not understand managedFields must not be able to break it
    try:
        return decode(live)
    except (ValueError, AttributeError, TypeError):
        return {}


def is_reset(entries: Any) -> bool:
    """Whether a request resets managedFields: with an empty list, or with one empty entry."""
    if entries.__class__ is not list:
        return False
    return not entries or (len(entries) == 1 and entries[0].__class__ is dict and not any(entries[0].values()))


def fit_managers(managers: Managers, type_: Type) -> None:
    """Adapt entries to the schema of a custom resource, which may have changed since they were written."""
    if is_built_in(type_):
        return
    for identity, entry in managers.items():
        fitted = fit_to_schema(entry.fields, type_)
        if fitted != entry.fields:
            managers[identity] = entry._replace(fields=fitted)


def remove_fields(managers: Managers, changed: FieldSet, removed: FieldSet, *, but: ManagerId | None = None) -> None:
    """Remove the fields from all managers except ``but``; remove managers without fields."""
    for identity, entry in list(managers.items()):
        if identity == but:
            continue
        rest = fieldset.difference(fieldset.difference(entry.fields, changed), removed)
        if not rest:
            del managers[identity]
        elif rest is not entry.fields:
            managers[identity] = entry._replace(fields=rest)


def _add_fields(managers: Managers, identity: ManagerId, fields: FieldSet, api_version: str, now: str) -> None:
    previous = managers.get(identity)
    if previous is not None:
        fields = fieldset.union(previous.fields, fields)
    managers[identity] = ManagedFieldsEntry(fields, api_version, now)


def cap_update_managers(managers: Managers) -> None:
    """Merge the oldest Update entries of each API version until at most ten Update entries are left."""
    excess = sum(identity.operation == UPDATE for identity in managers) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return
    updaters = [item for item in managers.items() if item[0].operation == UPDATE]
    updaters.sort(key=lambda item: (item[1].time, item[0]))
    first_of: dict[str, ManagerId] = {}
    for identity, entry in updaters:
        if excess <= 0:
            return
        version = entry.api_version
        first = first_of.setdefault(version, identity)
        if first == identity:
            continue
        bucket = manager_id(ANCIENT, UPDATE, version)
        if identity == bucket or bucket not in managers:
            older = managers.pop(first)
            first_of[version] = bucket
        else:
            older = managers[bucket]
        newer = managers.pop(identity)  # not ``entry``: the bucket may have grown since
        managers[bucket] = ManagedFieldsEntry(fieldset.union(newer.fields, older.fields), version, newer.time)
        excess -= 1


def keep_times_of_no_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Give ``new`` the entry times of ``old`` if nothing else differs, so that a write without changes stores
    nothing."""
    before = (old.get("metadata") or {}).get("managedFields")
    metadata = new.get("metadata") or {}
    after = metadata.get("managedFields")
    if not before or not after or before == after or len(before) != len(after):
        return
    if not all(_same_but_time(left, right) for left, right in zip(before, after, strict=True)):
        return
    metadata["managedFields"] = before
    if new != old:
        metadata["managedFields"] = after


def _same_but_time(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left == right or {**left, "time": None} == {**right, "time": None}
