"""The index of objects by controller, and cached selectors of owners."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import orjson

from shoal.kube import labels
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import controller_of

CONTROLLER: Final = "controller"  # the name of the index: ``context.informer("pods", controller=by_controller)``


def by_controller(obj: Obj) -> Iterable[str]:
    """The index function: the uid of the controller, or the namespace for objects without one."""
    reference = controller_of(obj)
    return (reference["uid"] if reference is not None else _orphans_of(obj["metadata"].get("namespace") or ""),)


def _orphans_of(namespace: str) -> str:
    return f"orphans/{namespace}"


def controlled_by(cache: Cache, owner: Obj) -> tuple[Obj, ...]:
    """The objects that the owner controls; the cache needs the index."""
    return cache.by_index(CONTROLLER, owner["metadata"]["uid"])


def orphans_in(cache: Cache, namespace: str) -> tuple[Obj, ...]:
    """The objects of a namespace without a controller."""
    return cache.by_index(CONTROLLER, _orphans_of(namespace))


@lru_cache(maxsize=4096)
def _selector(encoded: bytes) -> Selector:
    return labels.from_object(orjson.loads(encoded))


def selector_of(owner: Obj) -> Selector:
    """The selector of a workload; an empty one selects nothing, so that it cannot adopt a whole namespace."""
    found = owner["spec"].get("selector")
    return _selector(orjson.dumps(found)) if found else labels.NOTHING


@lru_cache(maxsize=4096)
def _set_selector(encoded: bytes) -> Selector:
    return labels.from_set(orjson.loads(encoded))


def set_selector_of(owner: Obj) -> Selector:
    """The selector of a ReplicationController, a plain map."""
    found = owner["spec"].get("selector")
    return _set_selector(orjson.dumps(found)) if found else labels.NOTHING
