"""Every write through the proxy names a version, keeps the slot and carries the epoch."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.client import PatchType
from shoal.errors import Conflict
from shoal.sharding.proxy.guarding import carries_version, guarded_body

SLOT, EPOCH = "slot.shard.io/web", "epoch.shard.io/web"
CURRENT = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {SLOT: "3", "app": "x"}}}


def sent(method: str, body: Any, content_type: str = PatchType.MERGE) -> Any:
    made = guarded_body(
        method, content_type, orjson.dumps(body), CURRENT, config="web", slot=3, epoch=9, stamp=True
    )  # fmt: skip
    return orjson.loads(made)


@pytest.mark.parametrize("named", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}, {"resourceVersion": None}])
def test_a_write_that_names_no_version_gets_the_one_that_was_read(named: dict[str, Any]) -> None:
    assert sent("PATCH", {"metadata": named})["metadata"]["resourceVersion"] == "7"
    assert sent("DELETE", {"preconditions": named})["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    with pytest.raises(Conflict):
        sent("PUT", {"metadata": named})
    assert not carries_version("PATCH", PatchType.MERGE, orjson.dumps({"metadata": named}))


def test_a_version_that_a_controller_names_is_kept() -> None:
    assert sent("PATCH", {"metadata": {"resourceVersion": "5"}})["metadata"]["resourceVersion"] == "5"
    assert sent("DELETE", {"preconditions": {"resourceVersion": "5"}})["preconditions"]["resourceVersion"] == "5"
    assert carries_version("PATCH", PatchType.MERGE, b'{"metadata": {"resourceVersion": "5"}}')


@pytest.mark.parametrize(
    ("labels", "left"), [(None, {"app": None}), ({SLOT: None, "app": "y"}, {"app": "y"}), ({SLOT: "4"}, {})]
)
def test_no_patch_removes_the_slot(labels: Any, left: dict[str, Any]) -> None:
    assert sent("PATCH", {"metadata": {"labels": labels}})["metadata"]["labels"] == left
    assert sent("PUT", {"metadata": {"resourceVersion": "7", "labels": labels}})["metadata"]["labels"][SLOT] == "3"


def test_every_write_carries_the_epoch() -> None:
    assert sent("PATCH", {"metadata": {"annotations": None}})["metadata"]["annotations"] == {EPOCH: "9"}
    assert sent("PUT", {"metadata": {"resourceVersion": "7"}})["metadata"]["annotations"] == {EPOCH: "9"}
    applied = sent("PATCH", {"metadata": {"labels": {"app": "y"}}}, f"{PatchType.APPLY}; charset=utf-8")["metadata"]
    assert applied == {"resourceVersion": "7", "labels": {SLOT: "3", "app": "y"}, "annotations": {EPOCH: "9"}}
    operations = sent("PATCH", [{"op": "remove", "path": "/spec"}], PatchType.JSON)
    assert operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert operations[-1]["value"] == "9"
