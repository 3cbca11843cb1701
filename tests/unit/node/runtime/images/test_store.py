"""The folder of images: loaded archives, what a kill leaves, the budget, what containers use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from image_folders import IMAGE, LAYERS, adder, tree

from shoal.base.clock import FakeClock
from shoal.node.runtime.images.locks import locked
from shoal.node.runtime.images.source import StoreImages
from shoal.node.runtime.model import CreateFailure, Image, ImageFailure
from shoal.node.runtime.process.images import load_table
from shoal.node.runtime.process.table_images import TableImages
from shoal.testing.images import BuiltImage, digest, entry, layer_of, layout, saved
from shoal.testing.waiting import eventually

OTHER = BuiltImage((LAYERS[0], layer_of(entry("other", b"x" * 1000))))


@pytest.mark.parametrize("kind", ["saved", "packed", "layout", "tar"])
async def test_archives_of_every_kind_are_loaded(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "archive"
    match kind:
        case "saved":
            saved(IMAGE, path, "shop/web:2", "web")
        case "packed":
            saved(IMAGE, path, "shop/web:2", "web", mode="w:gz")
        case _:
            layout(IMAGE, path, "docker.io/shop/web:2", tar=kind == "tar")
    images = adder(tmp_path)
    (found,) = await images.load(path)
    assert found.names[0] == "docker.io/shop/web:2" and found.id == digest(IMAGE.settings)
    assert kind not in ("saved", "packed") or found.names[1] == "docker.io/library/web:latest"
    upper, lower = images.store.layers_of(found) or ()
    assert tree(lower) == {"bin", "bin/tool", "old"} and tree(upper) == {"old", "new"}
    assert not tree(tmp_path / "images" / "blobs") and not tree(tmp_path / "images" / "work")


async def test_a_name_can_be_given_and_must_be_where_the_archive_has_none(tmp_path: Path) -> None:
    images, path = adder(tmp_path), layout(IMAGE, tmp_path / "layout")
    with pytest.raises(ImageFailure, match="does not say how its image is called: give a name"):
        await images.load(path)
    (found,) = await images.load(path, "shop/own:3")
    assert found.names == ("docker.io/shop/own:3",)


async def test_what_is_no_archive_of_images_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    (tmp_path / "empty").mkdir()
    images = adder(tmp_path)
    with pytest.raises(ImageFailure, match="is not a valid archive"):
        await images.load(tmp_path / "text")
    with pytest.raises(ImageFailure, match=r"expected an archive of `docker save`"):
        await images.load(tmp_path / "empty")


async def test_a_layout_with_another_layer_than_it_says_is_refused(tmp_path: Path) -> None:
    path = layout(IMAGE, tmp_path / "layout", "web:1")
    (path / "blobs" / digest(IMAGE.packed[0]).replace(":", "/")).write_bytes(IMAGE.packed[1])
    with pytest.raises(ImageFailure, match="the archive has a layer with the digest"):
        await adder(tmp_path).load(path)


async def test_an_image_without_layers_never_gets_the_files_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ImageFailure, match="has no layers"):
        await adder(tmp_path).load(saved(BuiltImage(()), tmp_path / "x.tar", "web:1"))


KILLED = """
import asyncio, sys; from pathlib import Path
sys.path.insert(0, sys.argv[1])
from image_folders import adder
asyncio.run(adder(Path(sys.argv[2])).load(Path(sys.argv[3])))
"""


async def test_a_kill_while_unpacking_leaves_nothing_that_is_used_and_nothing_for_ever(tmp_path: Path) -> None:
    slow = BuiltImage((layer_of(*(entry(f"f{n}", b"x") for n in range(4_000))),))
    path = saved(slow, tmp_path / "slow.tar", "slow:1")
    with subprocess.Popen([sys.executable, "-c", KILLED, os.path.dirname(__file__), tmp_path, path]) as process:
        work = tmp_path / "images" / "work"
        await eventually(lambda: list(work.glob("*/files/f500")))
        process.kill()
    images = adder(tmp_path)
    assert not images.store.index.images() and images.store.unpacked(digest(slow.layers[0])) is None
    (found,) = await images.load(path)
    ((layer),) = images.store.layers_of(found) or ()
    assert len(list(layer.iterdir())) == 4_000
    await images.store.collect()
    assert not tree(work)


async def test_the_budget_takes_what_was_used_least_lately_and_never_what_a_container_uses(tmp_path: Path) -> None:
    clock, used = FakeClock(), set[str]()
    images = adder(tmp_path, clock=clock, in_use=lambda: used, keep_s=60)
    store = images.store
    many = [BuiltImage((layer_of(entry("f", bytes([n]) * 100_000)),)) for n in range(4)]
    ids = []
    for number, each in enumerate(many):
        (found,) = await images.load(saved(each, tmp_path / "x.tar", f"i:{number}"))
        ids.append(found.id)
        await clock.advance(100)
    store.index.touch(ids[0], clock.wall_s())  # a pod has started it again
    await clock.advance(100)
    used.add(ids[1])
    removed = await store.collect(budget_bytes=310_000)
    assert [each.id for each in removed] == [ids[2], ids[3]]
    assert set(store.index.images()) == {ids[0], ids[1]}
    assert len(list((tmp_path / "images" / "layers").glob("*/*"))) == 2
    store.index.touch(ids[0], clock.wall_s() - 30)
    assert not await store.collect(budget_bytes=0)  # one is in use, the other was used a moment ago
    await store.remove(ids[1])
    assert ids[1] in store.index.images()
    assert [each.id for each in await store.collect(budget_bytes=0, keep_s=0)] == [ids[0]]


async def test_a_layer_of_two_images_stays_with_the_second(tmp_path: Path) -> None:
    images = adder(tmp_path)
    (first,) = await images.load(saved(IMAGE, tmp_path / "1.tar", "one:1"))
    (second,) = await images.load(saved(OTHER, tmp_path / "2.tar", "two:1"))
    await images.store.remove(first.id)
    assert images.store.layers_of(second) is not None and images.store.unpacked(digest(LAYERS[1])) is None


async def test_nothing_is_cleaned_while_an_image_is_being_added(tmp_path: Path) -> None:
    images = adder(tmp_path)
    store = images.store
    (found,) = await images.load(saved(IMAGE, tmp_path / "1.tar", "one:1"))
    async with store.adding():
        store.index.remove({found.id})
        await adder(tmp_path).store.collect()
        assert store.layers_of(found) is not None
    await store.collect()
    assert store.layers_of(found) is None


async def test_a_lock_is_held_by_one_at_a_time_also_inside_one_process(tmp_path: Path) -> None:
    clock, order = FakeClock(), list[str]()

    async def hold(name: str) -> None:
        async with locked(tmp_path / "lock", clock):
            order.append(f"{name} in")
            await clock.sleep(1)
            order.append(f"{name} out")

    both = asyncio.gather(hold("a"), hold("b"))
    for _ in range(50):
        await clock.advance(0.1)
    await both
    assert order == ["a in", "a out", "b in", "b out"]


async def test_a_full_disk_is_said_with_the_fix_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = adder(tmp_path)

    async def full(request: object) -> dict[str, object]:
        if isinstance(request, dict) and request["do"] == "unpack":
            raise OSError(28, "No space left on device")
        return {}

    monkeypatch.setattr(images.store, "_work", full)
    with pytest.raises(ImageFailure, match=r"No space left on device: free room on the disk.*shoal image prune"):
        await images.load(saved(IMAGE, tmp_path / "1.tar", "one:1"))
    assert not images.store.index.images() and not list((tmp_path / "images" / "layers").glob("*/*"))


async def test_only_images_of_shoal_come_from_the_table(tmp_path: Path) -> None:
    images = adder(tmp_path)
    source = StoreImages(TableImages(load_table()), images.store, images, clock=images.clock)
    own = await source.image("shoal/echo:1")
    assert own is not None and source.files_of(own).system and not source.files_of(own).layers
    assert await source.image("nginx") is None and await source.image("registry.example/shoal/echo") is None
    await images.load(saved(IMAGE, tmp_path / "1.tar", "nginx:latest"))
    found = await source.image("nginx")
    assert found is not None and found.command == ("/bin/tool",)
    files = source.files_of(found)
    assert len(files.layers) == 2 and not files.system and not files.programs
    assert {each.id for each in await source.images()} == {own.id, found.id}
    await source.remove_image(found.id)
    assert await source.image("nginx") is None
    with pytest.raises(CreateFailure, match="no longer on the node"):
        source.files_of(found)
    with pytest.raises(CreateFailure):
        source.files_of(Image(id="sha256:" + "0" * 64, names=()))
