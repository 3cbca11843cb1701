"""Layers are unpacked as overlayfs wants them, and hostile ones reach nothing outside their folder."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.node.runtime.images.compression import Refused
from shoal.node.runtime.images.limits import LayerLimits
from shoal.node.runtime.images.unpack import Unpacked, unpack
from shoal.testing.images import digest, entry, folder, hard_link, layer_of, link

Entry = tuple[tarfile.TarInfo, bytes]
KEPT = b"not yours"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An empty folder, with a file of someone else beside it."""
    (tmp_path / "layer").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_bytes(KEPT)
    return tmp_path / "layer"


@contextmanager
def opened(path: Path) -> Iterator[int]:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield number
    finally:
        os.close(number)


def unpacked(target: Path, *entries: Entry, owners: int = 1, packed: bytes = b"", **limits: int) -> Unpacked:
    with opened(target) as number:
        content = packed or gzip.compress(layer_of(*entries), 1)
        return unpack(io.BytesIO(content), number, LayerLimits(**limits), owners=owners)


def is_deleted(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(path: Path) -> bool:
    return "user.overlay.opaque" in os.listxattr(path)


def assert_nothing_outside(target: Path) -> None:
    beside = target.parent
    assert sorted(each.name for each in beside.iterdir()) == ["layer", "outside"]
    assert [each.name for each in (beside / "outside").iterdir()] == ["kept"]
    assert (beside / "outside" / "kept").read_bytes() == KEPT
    assert (beside / "outside" / "kept").lstat().st_nlink == 1


def test_files_folders_links_and_rights_are_as_in_the_archive(target: Path) -> None:
    found = unpacked(
        target,
        folder("d", mode=0o555, mtime=1000), entry("d/f", b"text", mode=0o4711, mtime=2000), entry("./deep/er/g"),
        link("absolute", "/etc/passwd"), link("d/up", "../deep"), hard_link("again", "d/f"),
        entry("pipe", type=tarfile.FIFOTYPE),
    )  # fmt: skip
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o555 and (target / "d").stat().st_mtime == 1000
    assert stat.S_IMODE((target / "d/f").stat().st_mode) == 0o4711 and (target / "d/f").stat().st_mtime == 2000
    assert (target / "deep/er/g").is_file() and os.readlink(target / "absolute") == "/etc/passwd"
    assert (target / "again").samefile(target / "d/f") and (target / "d/up").resolve() == target / "deep"
    assert stat.S_ISFIFO((target / "pipe").stat().st_mode)
    assert (found.size_bytes, found.entries) == (4, 9)


def test_the_digest_is_that_of_everything_unpacked_with_what_follows_the_end(target: Path) -> None:
    plain = layer_of(entry("f", b"x")) + b"\0" * 4096
    assert unpacked(target, packed=gzip.compress(plain[:2000]) + gzip.compress(plain[2000:])).diff_id == digest(plain)


def test_an_empty_layer_is_valid(target: Path) -> None:
    assert unpacked(target, packed=layer_of()).entries == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_owners_are_kept_where_there_are_users_for_them(target: Path) -> None:
    made = folder("d", uid=7, gid=8), entry("d/f", uid=1000, gid=1001, mode=0o6755), link("l", "d", uid=5, gid=6)
    unpacked(target, *made, owners=65536)
    owners = [(found.st_uid, found.st_gid) for each in ("d", "d/f", "l") for found in ((target / each).lstat(),)]
    assert owners == [(7, 8), (1000, 1001), (5, 6)]
    assert stat.S_IMODE((target / "d/f").stat().st_mode) == 0o6755  # a change of the owner clears these
    with pytest.raises(Refused, match=r"'h' belongs to user 70000: there are 0 to 65535 only"):
        unpacked(target, entry("h", uid=70000), owners=65536)


def test_what_a_layer_deletes_is_marked_for_overlayfs(target: Path) -> None:
    unpacked(
        target,
        entry(".wh.gone"), folder("cleared"), entry("cleared/.wh..wh..opq"), entry("cleared/new"),
        entry(".wh.back"), folder("back"), entry(".wh.through"), entry("through/file"),
        entry("kept"), entry(".wh.kept"), folder("kept_folder"), entry(".wh.kept_folder"),
        entry(".wh..wh.plnk"), entry(".wh.file_again"), entry("file_again", b"1"),
    )  # fmt: skip
    assert is_deleted(target / "gone")
    assert is_opaque(target / "cleared") and (target / "cleared/new").is_file()
    assert is_opaque(target / "back") and is_opaque(target / "through") and (target / "through/file").is_file()
    assert (target / "kept").is_file() and is_opaque(target / "kept_folder")
    assert (target / "file_again").read_bytes() == b"1"
    assert not [each.name for each in target.rglob(".wh.*")]


def test_a_later_entry_replaces_an_earlier_one(target: Path) -> None:
    unpacked(
        target,
        entry("a", b"1"), entry("a", b"2"), folder("d"), entry("d/f"), link("d", "/etc"), link("s", "/etc"),
        folder("s"), entry("s/f"),
    )  # fmt: skip
    assert (target / "a").read_bytes() == b"2" and (target / "d").is_symlink()
    assert not (target / "s").is_symlink() and (target / "s/f").is_file()


def test_attributes_are_not_kept_and_lost_capabilities_are_noted(target: Path) -> None:
    notes = {"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.overlay.opaque": "y"}
    assert unpacked(target, entry("ping", pax_headers=notes), entry("cat")).capabilities == ["ping"]
    assert not os.listxattr(target / "ping")


def outside(target: Path) -> str:
    return str(target.parent / "outside")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([entry("/etc/x")], "'/etc/x' is an absolute path"),
        ([entry("../x")], "'../x' leads out of the layer"),
        ([entry("a/../../x")], "leads out of the layer"),
        ([entry("a/..")], "leads out of the layer"),
        ([link("s", "/"), entry("s/outside/x")], "leads through 's', which is a symbolic link"),
        ([link("s", "a"), folder("a"), entry("s/x")], "leads through 's', which is a symbolic link"),
        ([link("s", "../outside")], "the symbolic link 's' leads out of the layer, to '../outside'"),
        ([link("a/b", "../../x")], "leads out of the layer"),
        ([link("a/b", "c/../../../x")], "leads out of the layer"),
        ([link("s", "")], "no valid target"),
        ([hard_link("h", "/etc/passwd")], "is an absolute path"),
        ([hard_link("h", "../outside/kept")], "leads out of the layer"),
        ([hard_link("h", "missing")], "which is not in this layer"),
        ([link("s", "/etc"), hard_link("h", "s/passwd")], "which is not in this layer"),
        ([folder("d"), hard_link("h", "d")], "which is not in this layer"),
        ([entry(".wh.d"), hard_link("h", "d")], "which is not in this layer"),
        ([folder("d"), entry("d/f"), hard_link("d", "d/f")], "would replace what it leads to"),
        ([entry("f"), entry("f/x")], "leads through 'f', which is not a folder"),
        ([entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "'null' is a device"),
        ([entry("sda", type=tarfile.BLKTYPE, devmajor=8)], "'sda' is a device"),
        ([entry("hidden", type=tarfile.CHRTYPE)], "'hidden' is a device"),
        ([entry("odd", type=b"Z")], "unknown type"),
        ([entry("sparse", type=tarfile.GNUTYPE_SPARSE)], "sparse"),
        ([entry("sparse", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "999"})], "sparse"),
        ([entry(".wh...")], "deletes nothing"),
        ([entry(".wh.")], "deletes nothing"),
        ([entry(".", b"x")], "is not a folder"),
        ([entry("x" * 300)], "File name too long"),
        ([entry("/".join("d" * 300))], "not a valid path"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_leads_out_or_is_no_file_is_refused(target: Path, entries: list[Entry], why: str) -> None:
    with pytest.raises(Refused, match=why.replace("(", r"\(").replace(".", r"\.")):
        unpacked(target, *entries)
    assert_nothing_outside(target)


@pytest.mark.parametrize(
    ("limits", "entries", "why"),
    [
        ({"bytes": 1000}, [entry("f", b"x" * 1001)], "more than 1000 bytes unpacked"),
        ({"bytes": 1000}, [entry(f"f{n}", b"x" * 300) for n in range(4)], "more than 1000 bytes unpacked"),
        ({"entries": 10}, [entry(f"f{n}") for n in range(11)], "more than 10 entries"),
        ({"entries": 10}, [entry("a/b/c/d/e/f/g/h/i/j/k")], "more than 10 entries"),
        ({"ratio": 10, "ratio_from_bytes": 1000}, [entry("f", bytes(10**6))], "the limit is 10 times"),
        ({"header_bytes": 1000}, [entry("f", pax_headers={"comment": "x" * 2000})], "the limit is 1000"),
        ({"header_bytes": 100}, [entry(str(n), pax_headers={"a": "x" * 70}) for n in range(99)], "the limit is 100"),
    ],
)
def test_bombs_are_refused(target: Path, limits: dict[str, int], entries: list[Entry], why: str) -> None:
    with pytest.raises(Refused, match=why):
        unpacked(target, *entries, packed=b"", **limits)


def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read(target: Path) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    with pytest.raises(Refused, match=r"headers of 8589934592 bytes"):
        unpacked(target, packed=header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


def test_a_file_that_claims_more_than_there_is_is_refused(target: Path) -> None:
    header = tarfile.TarInfo("f")
    header.size = 1 << 20
    with pytest.raises(Refused, match="ends inside of 'f'|not a valid tar"):
        unpacked(target, packed=header.tobuf() + bytes(4096))


@pytest.mark.parametrize("cut", [10, 600, -8])
def test_a_damaged_layer_is_refused(target: Path, cut: int) -> None:
    packed = gzip.compress(layer_of(entry("f", os.urandom(2000)), entry("g", os.urandom(2000))))
    with pytest.raises(Refused, match="damaged|not a valid"):
        unpacked(target, packed=packed[:cut])


def test_a_damaged_header_is_not_taken_for_the_end(target: Path) -> None:
    plain = bytearray(layer_of(entry("f", b"x"), entry("g", b"x")))
    plain[1024 + 150] ^= 1  # in the checksum of the second header
    with pytest.raises(Refused, match="damaged"):
        unpacked(target, packed=bytes(plain))


def test_zstd_is_read_where_python_can_and_otherwise_the_fix_is_said(target: Path) -> None:
    try:
        from compression.zstd import compress  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        with pytest.raises(Refused, match=r"zstd, which this Python cannot read: use Python 3\.14"):
            unpacked(target, packed=b"\x28\xb5\x2f\xfd" + bytes(100))
    else:
        assert unpacked(target, packed=compress(layer_of(entry("f")))).entries == 1


NAMES = st.lists(
    st.sampled_from(["a", "b", "c", "..", ".", "", "outside", "kept", ".wh.a", ".wh..wh..opq", ".wh.b", ".wh..."]),
    min_size=1, max_size=4,
).map("/".join)  # fmt: skip
TARGETS = st.one_of(NAMES, st.sampled_from(["/", "..", "../outside", "../../outside/kept", "OUTSIDE", "OUTSIDE/kept"]))
TYPES = st.sampled_from([
    tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.LNKTYPE,
    tarfile.FIFOTYPE, tarfile.CHRTYPE,
])  # fmt: skip
ENTRIES = st.lists(st.tuples(NAMES, TYPES, TARGETS), min_size=1, max_size=8)


@given(ENTRIES)
@settings(max_examples=300, deadline=None)
def test_no_archive_writes_outside(tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, Any, str]]) -> None:
    base = tmp_path_factory.mktemp("hostile")
    target = base / "layer"
    target.mkdir()
    (base / "outside").mkdir()
    (base / "outside" / "kept").write_bytes(KEPT)
    entries = [
        entry(name, b"x" if kind == tarfile.REGTYPE else b"", type=kind, linkname=leads.replace("OUTSIDE", outside(target)))
        for name, kind, leads in made
    ]  # fmt: skip
    # one at a time too: what is refused must not protect what follows
    for tried in (entries, *([each] for each in entries)):
        try:
            unpacked(target, *tried)
        except Refused:
            pass
        assert_nothing_outside(target)
    for path in target.rglob("*"):
        assert not stat.S_ISCHR(path.lstat().st_mode) or is_deleted(path)


@given(st.binary(max_size=3000), st.integers(0, 2500))
@settings(max_examples=150, deadline=None)
def test_no_bytes_do_anything_but_be_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int
) -> None:
    base = tmp_path_factory.mktemp("noise")
    target = base / "layer"
    target.mkdir()
    (base / "outside").mkdir()
    (base / "outside" / "kept").write_bytes(KEPT)
    plain = layer_of(entry("f", b"x" * 600), link("s", "f"), entry("g", pax_headers={"comment": "x"}))
    for packed in (noise, plain[:place] + noise + plain[place + len(noise) :]):
        try:
            unpacked(target, packed=packed or b"\0")
        except Refused:
            pass
        assert_nothing_outside(target)
