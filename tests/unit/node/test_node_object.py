"""The Node object that a node reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.node.config import NodeConfig, Taint
from shoal.node.node_object import (
    MachineInfo,
    NodeConditions,
    allocatable,
    capacity,
    new_node,
    node_status,
    same_but_heartbeat,
)
from shoal.node.runtime.model import RuntimeInfo


def test_a_node_reports_its_capacity_and_keeps_conditions_of_other_owners() -> None:
    config = NodeConfig(name="node", root=Path("/x"), reserved_cpu="500m", taints=(Taint("a"),), labels=(("x", "y"),))
    info = RuntimeInfo(name="r", version="1", cpu_milli=4000, memory_bytes=8 << 30)
    assert allocatable(config, info)["cpu"] == "3500m"
    network = {"type": "NetworkUnavailable", "status": "False"}
    machine = MachineInfo(machine_id="m", boot_id="b")

    def status(old: dict[str, Any], now: float, **condition: Any) -> dict[str, Any]:
        return node_status(old, config, info, machine, NodeConditions(**condition), (), version="v1.0.0", now=now)

    first = status({"conditions": [network]}, 1000.0)
    assert network in first["conditions"]
    second = status(first, 2000.0)
    assert second != first and same_but_heartbeat(first, second)
    third = status(second, 3000.0, runtime_fault="gone", pressures=frozenset({"DiskPressure"}))
    values = {each["type"]: each["status"] for each in third["conditions"]}
    assert (values["Ready"], values["DiskPressure"], values["MemoryPressure"]) == ("False", "True", "False")
    made = new_node(config, info, first)
    assert made["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]
    assert made["metadata"]["labels"]["x"] == "y"


def test_the_settings_of_a_node_win_over_what_its_machine_has() -> None:
    config = NodeConfig(name="node", root=Path("/x"), cpu="3", memory="2Gi", disk="7Gi", pods=9)
    info = RuntimeInfo(name="r", version="1", cpu_milli=4000, memory_bytes=8 << 30, disk_bytes=9 << 30)
    assert capacity(config, info) == {"cpu": "3", "memory": "2Gi", "ephemeral-storage": "7Gi", "pods": "9"}
