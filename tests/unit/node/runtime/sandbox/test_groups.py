from __future__ import annotations

from pathlib import Path

import pytest

from shoal.node.runtime.sandbox.groups import find_groups
from shoal.node.runtime.sandbox.helper.limits import settings


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cgroup").write_text("1:name=systemd:/x\n0::/user.slice/mine/app\n")
    return tmp_path / "proc"


def a_group(folder: Path, *, controllers: str = "cpu memory pids", writable: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    if writable:
        (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


def test_groups_of_version_2_are_made_where_they_were_delegated(tmp_path: Path, proc: Path) -> None:
    top = a_group(tmp_path / "cgroup", writable=False)
    a_group(top / "user.slice", writable=False)
    mine = a_group(top / "user.slice" / "mine")
    a_group(mine / "app")
    a_group(mine / "shoal")
    found = find_groups(proc=proc, top=top)
    assert found.of("c1") == dict.fromkeys(("memory", "cpu", "pids"), str(mine / "shoal" / "c1"))
    assert found.complete and found.unified
    assert (mine / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_without_delegation_limits_are_best_effort_and_say_why(tmp_path: Path, proc: Path) -> None:
    top = a_group(tmp_path / "cgroup", writable=False)
    a_group(top / "user.slice" / "mine" / "app", writable=False)
    found = find_groups(proc=proc, top=top)
    assert not found.of("c1") and found.shown.startswith("best effort: no control group is delegated to this user")


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path, proc: Path) -> None:
    for name in ("memory", "cpu"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("")
    found = find_groups(proc=proc, top=tmp_path)
    assert found.of("c") == {"memory": f"{tmp_path}/memory/shoal/c", "cpu": f"{tmp_path}/cpu/shoal/c"}
    assert not found.complete and not found.unified


def test_limits_as_each_version_writes_them() -> None:
    given = {"memory": 64 << 20, "cpu_limit_milli": 500, "cpu_request_milli": 1000, "processes": 100}
    second = settings(dict.fromkeys(("memory", "cpu", "pids"), "/g"), {**given, "unified": 1})
    assert [each[1:] for each in second] == [
        ("memory.max", str(64 << 20)), ("memory.swap.max", "0"), ("cpu.max", "50000 100000"), ("cpu.weight", "39"),
        ("pids.max", "100"),
    ]  # fmt: skip
    none = {"memory": 0, "cpu_limit_milli": 0, "cpu_request_milli": 0, "processes": 0, "unified": 0}
    first = settings({"memory": "/m", "cpu": "/c", "pids": "/p"}, none)
    assert [each[1:] for each in first] == [
        ("memory.limit_in_bytes", "-1"), ("memory.memsw.limit_in_bytes", "-1"), ("memory.limit_in_bytes", "-1"),
        ("cpu.cfs_quota_us", "-1"), ("cpu.shares", "2"), ("pids.max", "max"),
    ]  # fmt: skip
