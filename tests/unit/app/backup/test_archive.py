"""The file of a backup: complete or absent, and damage is named."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from shoal.app.backup.archive import extract, new_archive
from shoal.errors import ConfigError, ShoalError


def written(folder: Path) -> Path:
    path = folder / "backup.tar"
    (folder / "store").write_bytes(b"rows" * 1000)
    with new_archive(path, version="1.0", created_at="2026-01-01T00:00:00Z") as archive:
        archive.add("clusters/eu-1/databases/main.db", folder / "store")
        archive.add_bytes("clusters/eu-1/files/pki/ca.key", b"a key")
        archive.parts["clusters/eu-1"] = {"kind": "cluster", "databases": ["main"]}
    return path


def test_what_was_added_is_extracted_with_the_manifest_and_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    manifest = extract(path, tmp_path / "out")
    assert (tmp_path / "out/clusters/eu-1/databases/main.db").read_bytes() == b"rows" * 1000
    key = tmp_path / "out/clusters/eu-1/files/pki/ca.key"
    assert key.read_bytes() == b"a key" and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert manifest["parts"] == {"clusters/eu-1": {"kind": "cluster", "databases": ["main"]}}
    assert (manifest["version"], manifest["createdAt"]) == ("1.0", "2026-01-01T00:00:00Z")


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    at = content.index(b"rowsrows")
    path.write_bytes(content[:at] + b"R" + content[at + 1 :])
    with pytest.raises(ShoalError, match=r"clusters/eu-1/databases/main.db does not match its checksum"):
        extract(path, tmp_path / "out")


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6])
def test_a_backup_that_was_cut_off_is_refused(tmp_path: Path, part: float) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(ShoalError):
        extract(path, tmp_path / "out")


def test_an_archive_that_fails_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with (
        pytest.raises(RuntimeError),
        new_archive(tmp_path / "there" / "backup.tar", version="1.0", created_at="") as archive,
    ):
        archive.add_bytes("a", b"a")
        raise RuntimeError("the disk is full")
    assert not list((tmp_path / "there").iterdir())


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    path = written(tmp_path)
    with (
        pytest.raises(ConfigError, match="exists; choose another name"),
        new_archive(path, version="1.0", created_at=""),
    ):
        pass


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside", "a//b", ".hidden", "a\nb"])
def test_members_with_other_names_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(ShoalError):
        extract(path, tmp_path / "out")
    assert not list(tmp_path.rglob("outside"))


def test_links_and_other_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(ShoalError, match="unexpected member 'link'"):
        extract(path, tmp_path / "out")


def test_a_file_that_is_not_a_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ShoalError, match="cannot be read"):
        extract(tmp_path / "text", tmp_path / "out")
    with pytest.raises(ShoalError, match="cannot be read"):
        extract(tmp_path / "missing", tmp_path / "out")
