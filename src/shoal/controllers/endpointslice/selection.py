"""Maps a change of a pod to the services that select it."""

from __future__ import annotations

from collections.abc import Callable

from shoal.controllers.endpointslice.endpoint import endpoint_facts
from shoal.controllers.pods.owners import set_selector_of
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache, Change
from shoal.reconcile.keys import ObjectKey, key_of


def selects_pods(service: Obj) -> bool:
    """Whether a service has a selector; endpoints of others are written by users."""
    spec = service["spec"]
    return spec.get("selector") is not None and spec.get("type") != "ExternalName"


def pods_of(service: Obj, pods: Cache) -> tuple[Obj, ...]:
    """The pods that a service selects; an empty selector selects all of its namespace."""
    namespace = service["metadata"]["namespace"]
    if not service["spec"]["selector"]:
        return pods.select(namespace=namespace)
    return pods.select(set_selector_of(service), namespace=namespace)


class PodWatcher:
    """A handler of pod changes that enqueues the affected services."""

    def __init__(self, services: Cache, concerned: Callable[[ObjectKey], None]) -> None:
        self._services = services
        self._concerned = concerned

    def __call__(self, change: Change) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None:
            if endpoint_facts(old) == endpoint_facts(new):
                return
            before, after = old["metadata"].get("labels") or {}, new["metadata"].get("labels") or {}
            tags = [after] if before == after else [before, after]
        else:
            if not _had_address(change.object):
                return  # added without an address, or deleted without ever having one
            tags = [change.object["metadata"].get("labels") or {}]
        namespace = change.key.namespace
        for service in self._services.select(namespace=namespace):
            if selects_pods(service) and any(_selects(service, each) for each in tags):
                self._concerned(key_of(service))


def _had_address(pod: Obj) -> bool:
    return bool((pod.get("status") or {}).get("podIP"))


def _selects(service: Obj, tags: dict[str, str]) -> bool:
    return not service["spec"]["selector"] or set_selector_of(service).matches(tags)
