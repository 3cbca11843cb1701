"""Which parts a state directory has, and which of their files a backup keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.backup.selection import chosen, is_kept, part_in, parts_of
from shoal.errors import ConfigError


def started(folder: Path, lock: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / lock).touch()


def test_the_directory_of_up_has_a_control_plane_a_navigator_and_its_clusters(tmp_path: Path) -> None:
    started(tmp_path / "control", "control.lock")
    started(tmp_path / "navigator", "manager.lock")
    started(tmp_path / "clusters" / "eu-1", "cluster.lock")
    (tmp_path / "clusters" / "empty").mkdir()
    found = parts_of(tmp_path)
    assert [part.name for part in found] == ["control", "navigator", "clusters/eu-1"]
    assert [part_in(tmp_path, part.kind, part.name, alone=False) for part in found] == found


def test_the_directory_of_one_process_is_its_own_part(tmp_path: Path) -> None:
    started(tmp_path, "cluster.lock")
    (part,) = parts_of(tmp_path)
    assert (part.kind, part.name, part.folder) == ("cluster", "cluster", tmp_path)
    assert part_in(tmp_path, "cluster", "cluster", alone=True) == part


def test_a_directory_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no control plane, navigator or cluster was started there"):
        parts_of(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["pki/ca.key", "kubeconfig", "tokens.json", "master.key", "admin.token", "krane/agent.key", "checks.json", "port"],
)
def test_keys_tokens_and_settings_are_kept(name: str) -> None:
    assert is_kept(name)


@pytest.mark.parametrize(
    "name",
    ["store.db", "store.db-wal", "store.db.sock", "fleet.db-shm", "cluster.lock", "cluster.log", "nodes/node-1/log",
     "addresses/node-1", "krane/deployments.cache", ".tokens.json.x", "pki/.ca.key.x"],
)  # fmt: skip
def test_what_belongs_to_running_processes_is_left_out(name: str) -> None:
    assert not is_kept(name)


def test_only_known_parts_can_be_chosen() -> None:
    assert chosen(["control", "navigator"], []) == ["control", "navigator"]
    assert chosen(["control", "navigator"], ["navigator"]) == ["navigator"]
    with pytest.raises(ConfigError, match=r"only has 'clusters/eu': there is control, navigator"):
        chosen(["control", "navigator"], ["clusters/eu"])
