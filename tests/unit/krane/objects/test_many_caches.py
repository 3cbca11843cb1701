"""Several namespaces as one cache."""

from __future__ import annotations

import asyncio
from typing import Any

from shoal.krane.objects.many_caches import GatheredCache
from shoal.reconcile import Cache, ObjectKey


def pod(namespace: str, name: str, version: int, key: str = "k") -> dict[str, Any]:
    about = {"namespace": namespace, "name": name, "resourceVersion": str(version), "uid": name, "labels": {"key": key}}
    return {"metadata": about}


async def test_it_has_the_objects_of_all_parts_and_syncs_with_the_last_of_them() -> None:
    first, second = Cache(), Cache()
    both = GatheredCache([first, second], {"key": lambda obj: [obj["metadata"]["labels"]["key"]]})
    seen: list[str] = []
    both.add_handler(lambda change: seen.append(f"{change.type} {change.key.name}"))
    following = asyncio.create_task(both.follow(), name="follow")

    first.replace([pod("a", "one", 5)], "7")
    await asyncio.sleep(0)
    assert not both.synced.is_set() and both.resource_version == ""
    second.replace([pod("b", "two", 6)], "9")
    await following
    assert both.synced.is_set() and both.resource_version == "7", "everything up to 7 was seen"
    assert {each["metadata"]["name"] for each in both.by_index("key", "k")} == {"one", "two"}

    second.upsert(pod("b", "two", 10))
    found = both.get(ObjectKey("b", "two"))
    assert found is not None and found["metadata"]["resourceVersion"] == "10"
    second.remove(pod("b", "two", 11))
    first.observe("12")
    second.observe("11")
    assert both.get(ObjectKey("b", "two")) is None and both.resource_version == "11"
    assert seen == ["added one", "added two", "updated two", "deleted two"]
