"""``Table`` documents, which ``kubectl get`` prints, and objects reduced to their metadata.

A ``Printer`` has the columns of a kind and computes the cells of a row: ``printer`` returns the one of a built-in kind,
``custom_printer`` builds the one of a custom resource. The other functions build documents from rows. Times are seconds
since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.kube.tables import access, autoscalers, cluster, network, pods, storage, workloads
from shoal.kube.tables.custom import custom_printer
from shoal.kube.tables.printer import CREATED_AT, NAME, Cells, Printer
from shoal.kube.tables.text import created_at, human_duration, metadata, name

__all__ = [
    "Include",
    "Printer",
    "custom_printer",
    "human_duration",
    "list_table",
    "object_table",
    "partial_list",
    "partial_object",
    "printer",
    "watch_table",
]

Include = Literal["None", "Metadata", "Object"]

_META: Final = "meta.k8s.io/v1"
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


def _name_and_creation(obj: Obj, now: float) -> Cells:
    return [name(obj), created_at(obj)]


_DEFAULT: Final = Printer([NAME, CREATED_AT], _name_and_creation)
_DEFAULT_CUSTOM: Final = custom_printer()
_PRINTERS: Final[dict[tuple[str, str], Printer]] = {
    **pods.PRINTERS,
    **workloads.PRINTERS,
    **autoscalers.PRINTERS,
    **network.PRINTERS,
    **cluster.PRINTERS,
    **storage.PRINTERS,
    **access.PRINTERS,
}


def printer(resource: Resource) -> Printer:
    """The printer of a kind; for a custom resource, the one without additional columns."""
    if resource.custom:
        return _DEFAULT_CUSTOM
    return _PRINTERS.get((resource.group, resource.kind), _DEFAULT)


def list_table(
    resource: Resource,
    items: Iterable[Obj],
    list_meta: Mapping[str, Any],
    include: Include,
    now: float,
    use: Printer | None = None,
) -> dict[str, Any]:
    """The table of a list. ``list_meta`` is the list's metadata, ``use`` the printer of a custom resource."""
    chosen = use or printer(resource)
    rows = [_row(chosen, resource, obj, include, now) for obj in items]
    return _table(dict(list_meta), chosen.columns, rows)


def object_table(
    resource: Resource, obj: Obj, include: Include, now: float, use: Printer | None = None
) -> dict[str, Any]:
    """The table of one object."""
    meta = {"resourceVersion": metadata(obj).get("resourceVersion", "")}
    return list_table(resource, (obj,), meta, include, now, use)


def watch_table(
    resource: Resource, obj: Obj, first: bool, include: Include, now: float, use: Printer | None = None
) -> dict[str, Any]:
    """The table of one watch event; only the first one of a stream has the column definitions."""
    chosen = use or printer(resource)
    return _table(_version(obj), chosen.columns if first else [], [_row(chosen, resource, obj, include, now)])


def partial_object(obj: Obj) -> dict[str, Any]:
    """The metadata of an object, as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": metadata(obj)}


def partial_list(items: Iterable[Obj], list_meta: Mapping[str, Any]) -> dict[str, Any]:
    """A list of objects reduced to their metadata."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META,
        "metadata": dict(list_meta),
        "items": [partial_object(obj) for obj in items],
    }


def _table(meta: dict[str, Any], definitions: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "Table", "apiVersion": _META, "metadata": meta, "columnDefinitions": definitions, "rows": rows}


def _version(obj: Obj) -> dict[str, Any]:
    version = metadata(obj).get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def _row(chosen: Printer, resource: Resource, obj: Obj, include: Include, now: float) -> dict[str, Any]:
    made: dict[str, Any] = {"cells": chosen.cells(obj, now)}
    if chosen.conditions is not None:
        found = chosen.conditions(obj)
        if found:
            made["conditions"] = found
    made["object"] = _shown(resource, obj, include)
    return made


def _shown(resource: Resource, obj: Obj, include: Include) -> dict[str, Any] | None:
    if include == "Object":
        return {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
    if include == "None" and not _ends_initial_events(obj):
        return None
    return partial_object(obj)


def _ends_initial_events(obj: Obj) -> bool:
    """Whether this is the bookmark that ends the initial events. Clients read its annotation even if they request rows
    without objects."""
    return (metadata(obj).get("annotations") or {}).get(_INITIAL_EVENTS_END) == "true"
