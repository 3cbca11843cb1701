"""What an applier and an observer know together."""

from __future__ import annotations

import copy

from shoal.krane.objects.memory import Memory, Written, secret_metadata, with_foreign_fields
from shoal.krane.objects.watching import by_key
from shoal.reconcile import Cache

KEY = "deployment/dep_1"
LABELS = {"app.kubernetes.io/component": "deployment", "shoal.dev/deployment": "dep_1"}


def service(version="5", kind="Service", **spec):
    about = {"name": "web", "namespace": "ns", "uid": "u1", "resourceVersion": version, "labels": LABELS}
    return {"kind": kind, "apiVersion": "v1", "metadata": about, "spec": {"port": 1, **spec}}


def want(**spec):
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"port": 1, **spec},
    }


async def known(memory, *objects, version="9"):
    cache = Cache(transform=with_foreign_fields, indexes={"key": by_key})
    cache.replace([copy.deepcopy(obj) for obj in objects], version)
    memory.caches = {"Service": cache}
    return memory


def wrote(made, **wanted):
    memory = Memory()
    memory.remember(KEY, [Written.of(want(**wanted), made)])
    return memory


async def test_what_is_as_it_was_applied_is_no_drift():
    assert (await known(wrote(service()), service())).drift(KEY) == []


async def test_what_differs_is_drift_and_so_is_what_is_gone():
    assert (await known(wrote(service()), service("6", port=2))).drift(KEY) == ["Service.spec.port"]
    assert (await known(wrote(service()))).drift(KEY) == ["Service.(deleted)"]


async def test_what_was_not_seen_yet_is_not_judged():
    assert (await known(wrote(service("7", port=2), port=2), service("6"))).drift(KEY) == []
    assert (await known(wrote(service("12")))).drift(KEY) == []


async def test_what_the_rules_of_the_cluster_change_at_once_is_no_drift():
    memory = await known(wrote(service(port=3)), service("6", port=3))
    assert memory.drift(KEY) == []
    assert (await known(memory, service("7", port=3, more=1))).drift(KEY) == []


async def test_an_object_that_is_known_to_be_newer_is_not_recalled():
    assert (await known(wrote(service("7")), service("6"))).recall(KEY, want()) is None
    assert (await known(wrote(service("7")), service("7"))).recall(KEY, want()) is not None
    assert Memory().recall(KEY, want()) is None


def test_secrets_are_not_kept_but_that_there_is_one_is_known():
    memory = Memory()
    secret = {**want(), "kind": "Secret", "data": {"A": "eA=="}}
    assert not memory.has_none(KEY, "Secret")
    memory.remember(KEY, [Written.of(secret, service(kind="Secret"))])
    assert not memory.has_none(KEY, "Secret") and memory.has_none(KEY, "HorizontalPodAutoscaler")
    assert "eA==" not in repr(vars(memory))
    memory.forget(KEY)
    assert not memory.has_none(KEY, "HorizontalPodAutoscaler")


def secret(version="5", manager="krane", field="f:PASSWORD"):
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:data": {field: {}}}}
    about = {**service(version)["metadata"], "managedFields": [entry]}
    return {"kind": "Secret", "apiVersion": "v1", "metadata": about, "data": {"PASSWORD": "aHVudGVyMg=="}}


async def seen_secret(memory, *objects, version="9"):
    cache = Cache(transform=secret_metadata, indexes={"key": by_key})
    cache.replace([copy.deepcopy(obj) for obj in objects], version)
    memory.caches = {"Secret": cache}
    return memory


async def test_a_secret_that_is_gone_or_that_others_changed_is_drift_and_its_values_are_not_kept():
    wanted = {**want(), "kind": "Secret", "data": {"PASSWORD": "aHVudGVyMg=="}}
    del wanted["spec"]
    memory = Memory()
    memory.remember(KEY, [Written.of(wanted, secret())])
    assert (await seen_secret(memory, secret())).drift(KEY) == []
    assert memory.recall(KEY, wanted) is None, "too little was seen of it to leave out a read"
    assert (await seen_secret(memory)).drift(KEY) == ["Secret.(deleted)"]
    assert (await seen_secret(memory, secret("6", manager="editor"))).drift(KEY) == ["Secret.data"]
    assert "aHVudGVyMg" not in repr(memory.__dict__) + repr(list(memory.caches["Secret"]))
