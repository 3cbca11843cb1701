"""The environment and the volumes that containers see."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from shoal.node.runtime.model import (
    Mount,
    OutputStream,
    StartFailure,
)
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]


async def test_a_container_knows_its_address_port_and_name(on_process_node: Run) -> None:
    async with on_process_node() as node:
        shown = "echo $HOST $POD_IP $PORT $HOSTNAME $(pwd)"
        container = await node.sh(f"{shown}; hostname 2>/dev/null", ports=(4711, 4712), env=(("A", "1"), ("A", "2")))
        await node.exited(container)
        first, *names = (await node.output(container)).splitlines()
        folder = node.folder(container) / "work"
        assert first == f"{node.address} {node.address} 4711 pod {folder}"
        assert names in ([], ["pod"])
        other = await node.sh("echo $PORT $A; exec env", name="other", env=(("A", "1"), ("A", "2"), ("PORT", "99")))
        await node.exited(other)
        assert (await node.output(other)).startswith("99 2\n")


async def test_a_container_does_not_inherit_the_environment_of_the_agent(
    on_process_node: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "x")

    async with on_process_node() as node:
        container = await node.sh("env")
        await node.exited(container)
        found = await node.output(container)
        assert "AGENT_SECRET" not in found and "PATH=" in found


def volumes(tmp_path: Path) -> tuple[Mount, ...]:
    (tmp_path / "data").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "key").write_text("value")
    (tmp_path / "message").touch()
    return (
        Mount(host_path=str(tmp_path / "message"), container_path="/dev/termination-log"),
        Mount(host_path=str(tmp_path / "config"), container_path="/data/inner/config", read_only=True, volume="config"),
        Mount(host_path=str(tmp_path / "data"), container_path="/data", volume="data"),
        Mount(host_path=str(tmp_path / "config"), container_path="/etc/shoal-test/config", volume="config"),
    )


async def test_volumes_are_mounted_at_their_paths(on_process_node: Run, tmp_path: Path) -> None:
    async with on_process_node() as node:
        await node.needs_namespaces()
        script = (
            "echo bye > /dev/termination-log; echo new > /data/file; cat /data/inner/config/key /etc/shoal-test/config/key; "
            "echo no > /data/inner/config/key; ls / > /dev/null && ls /etc/passwd; test -e $SHOAL_POD_DIR/data/file && echo same"
        )
        container = await node.sh(script, mounts=volumes(tmp_path))
        await node.exited(container)
        assert await node.output(container) == "valuevalue/etc/passwd\nsame\n"
        assert "Read-only" in await node.output(container, OutputStream.STDERR)
        assert (tmp_path / "message").read_text() == "bye\n"
        assert (tmp_path / "data" / "file").read_text() == "new\n"
    assert not os.path.exists("/data") and not os.path.exists("/etc/shoal-test")


async def test_without_namespaces_volumes_are_below_the_pod_directory_and_an_event_says_so(
    on_process_node: Run, tmp_path: Path
) -> None:
    async with on_process_node(namespaces="off") as node:
        script = "cat $SHOAL_POD_DIR/etc/shoal-test/config/key; echo bye > $SHOAL_POD_DIR/dev/termination-log; echo $SHOAL_SERVICEACCOUNT_DIR"
        container = await node.sh(script, mounts=volumes(tmp_path))
        await node.exited(container)
        found = await node.output(container)
        folder = node.folder(container) / "root"
        assert found == f"value{folder}/var/run/secrets/kubernetes.io/serviceaccount\n"
        assert (tmp_path / "message").read_text() == "bye\n"
        await eventually(lambda: node.notices)
        assert [each.reason for each in node.notices] == ["VolumeRedirected"]
        assert "/etc/shoal-test/config" in node.notices[0].message and "termination-log" not in node.notices[0].message


async def test_a_volume_that_cannot_be_mounted_is_a_start_error_that_names_it(
    on_process_node: Run, tmp_path: Path
) -> None:
    async with on_process_node() as node:
        await node.needs_namespaces()
        (tmp_path / "file").touch()
        with pytest.raises(StartFailure, match="/etc"):
            await node.sh("true", mounts=(Mount(host_path=str(tmp_path / "file"), container_path="/etc"),))
