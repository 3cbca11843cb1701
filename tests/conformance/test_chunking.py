"""Lists in chunks, and what becomes of a chunk whose state is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from conformance_api import Api, Resource, conformance, refused

from shoal.kube.objects import Obj

TOTAL = 400


def templates_of(api: Api, namespace: str) -> Resource:
    """A namespace with pod templates ``template-0000``…"""
    templates = api.of("v1", "podtemplates", namespace)

    def create(number: int) -> None:
        spec = {"containers": [{"name": "test", "image": "test2"}]}
        templates.create({"metadata": {"name": f"template-{number:04d}"}, "template": {"spec": spec}})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(TOTAL)))
    return templates


def check_chunk(chunk: Obj, found: int, limit: int) -> int:
    """A chunk carries on after ``found`` objects and counts what is left; how many there are with it."""
    names = [item["metadata"]["name"] for item in chunk["items"]]
    assert names == [f"template-{number:04d}" for number in range(found, found + len(names))]
    assert len(names) <= limit
    found += len(names)
    if chunk["metadata"].get("continue"):
        assert chunk["metadata"]["remainingItemCount"] == TOTAL - found
    else:
        assert "remainingItemCount" not in chunk["metadata"]
        assert found == TOTAL
    return found


def read_chunks(templates: Resource, token: str, revision: str, found: int, limit: int) -> None:
    """Every further chunk is of the same revision, to the last."""
    while token:
        chunk = templates.list(limit=limit, **{"continue": token})
        assert chunk["metadata"]["resourceVersion"] == revision
        found = check_chunk(chunk, found, limit)
        token = chunk["metadata"].get("continue", "")
    assert found == TOTAL


@conformance(
    "[sig-api-machinery] Servers with support for API chunking should return chunks of results for list calls"
    " [Conformance]"
)
def test_a_list_in_chunks_is_one_list(api: Api, namespace: str) -> None:
    templates = templates_of(api, namespace)
    for _ in range(3):
        first = templates.list(limit=17)["metadata"]
        read_chunks(templates, first["continue"], first["resourceVersion"], 17, 17)
    assert len(templates.list(limit=TOTAL + 1)["items"]) == TOTAL


@conformance(
    "[sig-api-machinery] Servers with support for API chunking should support continue listing from the last key if"
    " the original version has been compacted away, though the list is inconsistent [Conformance] [Slow]"
)
def test_a_forgotten_chunk_can_be_continued_inconsistently(api: Api, namespace: str) -> None:
    templates = templates_of(api, namespace)
    limit = TOTAL // 10
    first = templates.list(limit=limit)
    check_chunk(first, 0, limit)
    fill_history(templates)

    expired = refused("Expired", templates.list, limit=limit, **{"continue": first["metadata"]["continue"]})
    assert expired.code == 410
    token = expired.status["metadata"]["continue"]

    second = templates.list(limit=limit, **{"continue": token})
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    assert len(second["items"]) == limit
    found = check_chunk(second, limit, limit)
    api.of("v1", "configmaps", namespace).create({"metadata": {"name": "meanwhile"}})
    read_chunks(templates, second["metadata"]["continue"], second["metadata"]["resourceVersion"], found, limit)


def fill_history(templates: Resource) -> None:
    """Make the server forget: it keeps 64 MiB of old states, and a deleted object counts twice, as it was and at its
    end."""
    env = [{"name": "FILL", "value": "x" * (1 << 20)}]
    spec = {"containers": [{"name": "test", "image": "test2", "env": env}]}
    for _ in range(34):
        templates.create({"metadata": {"name": "large"}, "template": {"spec": spec}})
        templates.delete("large")
