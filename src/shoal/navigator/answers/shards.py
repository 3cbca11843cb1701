"""Sharded controllers of all clusters: their configuration, their shards, and which shard owns which slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.model import Row
from shoal.navigator.view import View

Json = dict[str, Any]

_OF_CONFIG = (
    "currentShards", "desiredShards", "healthyShards", "drainingShards", "movingSlots", "unassignedSlots",
    "assignedCount", "averageLoad", "totalLoad", "decision", "conditions", "strategy",
)  # fmt: skip
_SET = ("minShards", "maxShards", "loadBalanceStrategy", "scaleUpThreshold", "scaleDownThreshold", "leaseDuration")
_OF_INSTANCE = ("phase", "phaseSince", "state", "reason", "load", "slots", "assignedCount", "term", "joined", "message")


async def read_shards(view: View) -> Json:
    configs, instances, slots = [await _read(view, kind) for kind in ("shardconfigs", "shardinstances", "shardslots")]
    return {
        "configs": [_place(row) | _config(obj) for row, obj in configs],
        "instances": [_place(row) | _instance(obj) for row, obj in instances],
        "slots": [
            _place(row) | {"config": obj["spec"].get("config", "")} | slot_ranges(obj["spec"].get("entries") or ())
            for row, obj in slots
        ],
    }


async def _read(view: View, kind: str) -> list[tuple[Row, Obj]]:
    rows: Sequence[Row] = sorted(view.rows(kind), key=lambda row: (row.cluster, row.namespace, row.name))
    return [(row, obj) for row, obj in zip(rows, await view.objects(rows), strict=True) if obj is not None]


def _place(row: Row) -> Json:
    return {"cluster": row.cluster, "namespace": row.namespace, "name": row.name}


def _config(obj: Obj) -> Json:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return {name: spec[name] for name in _SET if name in spec} | {
        name: status[name] for name in _OF_CONFIG if name in status
    }


def _instance(obj: Obj) -> Json:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ranges = [[each["start"], each["end"]] for each in spec.get("hashRanges") or ()]
    return {"config": spec.get("config", ""), "hashRanges": ranges} | {
        name: status[name] for name in _OF_INSTANCE if name in status
    }


def slot_ranges(entries: Iterable[Obj]) -> Json:
    """``owners``: first slot, last slot and owner (empty: none) of neighbours; ``moving``: the slots that move."""
    owners: list[list[Any]] = []
    moving: list[Json] = []
    for entry in sorted(entries, key=lambda each: int(each["slot"])):
        slot, owner = int(entry["slot"]), str(entry.get("owner") or "")
        if owners and owners[-1][1] == slot - 1 and owners[-1][2] == owner:
            owners[-1][1] = slot
        else:
            owners.append([slot, slot, owner])
        if move := entry.get("move"):
            told = {"from": move.get("from") or owner, "to": move.get("to", ""), "phase": move.get("phase", "")}
            moving.append({"slot": slot, **told})
    return {"owners": owners, "moving": moving}
