"""Conditions of a ShardConfig: they say in words what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.crds.shard import ConfigSpec, read_config
from shoal.sharding.manager.conditions import ConditionFacts, config_conditions
from shoal.sharding.manager.memory import PassFigures
from shoal.sharding.manager.scaling import Direction, ScalingDecision

FIGURES = PassFigures(phases={"Running": 2}, healthy=2, load=0.5, queue_depth=0, unowned=0, moving=0)
HOLD = ScalingDecision(shards=2, direction=Direction.HOLD, reason="Balanced", explanation="load 0.5 is fine")
GOOD = ConditionFacts(
    name="web", generation=1, spec=ConfigSpec(template={}), figures=FIGURES, decision=HOLD, pending_moves=0,
    targets_named=True, target_problems={}, pod_problems={},
)  # fmt: skip


def found(kind: str, **facts: Any) -> tuple[str, str, str]:
    (now,) = [it for it in config_conditions(replace(GOOD, **facts), (), 0.0) if it["type"] == kind]
    return now["status"], now["reason"], now["message"]


def test_without_workers_the_condition_says_how_to_get_some() -> None:
    none = replace(FIGURES, phases={"Pending": 2}, healthy=0, unowned=1024)
    assert found("Ready")[:2] == ("True", "AllSlotsOwned")
    others = read_config({"spec": {"targets": [{"kind": "ConfigMap"}]}})
    status, reason, text = found("Ready", figures=none, spec=others)
    assert (status, reason) == ("False", "NoWorkers")
    assert "built-in worker handles only ShardedResources" in text
    assert "`shoal shard worker MODULE:NAME --config web --shard ID`" in text
    assert "externalWorkers is set" in found("Ready", figures=none, spec=ConfigSpec(external_workers=True))[2]
    starting = found("Ready", figures=none, pod_problems={"web-1": "ErrImagePull: no such image"})
    assert starting == (
        "False", "NoWorkers", "no worker runs; 2 of 2 shards are starting; web-1: ErrImagePull: no such image"
    )  # fmt: skip


def test_targets_that_cannot_be_shared_out_are_named() -> None:
    assert found("TargetsFound", targets_named=False)[:2] == ("True", "DefaultTarget")
    problems = {"Website.example.com": "the server does not serve this kind"}
    assert found("TargetsFound", target_problems=problems) == (
        "False", "NoTargets", "Website.example.com: the server does not serve this kind"
    )  # fmt: skip


def test_scaling_that_is_blocked_says_by_what() -> None:
    assert found("ScaleBlocked")[:2] == ("False", "NotBlocked")
    refused = {"web-1": "the server refused its pod: quota exceeded"}
    assert found("ScaleBlocked", pod_problems=refused) == (
        "True", "PodsNotStarting", "web-1: the server refused its pod: quota exceeded"
    )  # fmt: skip
    full = replace(HOLD, reason="AtMaximum", explanation="load 0.9, but maxShards is 2")
    assert found("ScaleBlocked", decision=full) == ("True", "AtMaximum", "load 0.9, but maxShards is 2")
    more = found("ScaleBlocked", decision=replace(HOLD, shards=3), spec=ConfigSpec(external_workers=True))
    assert more[:2] == ("True", "ExternalWorkers")
    assert "3 shards are wanted and 2 run" in more[2]
