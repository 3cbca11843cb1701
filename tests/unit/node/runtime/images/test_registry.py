"""Images from a registry: tokens, credentials, platforms, broken and lying downloads, everything over real HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from image_folders import IMAGE, adder, registry, tree

from shoal.node.runtime.images.adding import ImageAdder
from shoal.node.runtime.images.index import KeptImage
from shoal.node.runtime.model import ImageFailure, ImageFault, PullProgress, RegistryCredentials
from shoal.testing.images import ARCHITECTURE, BuiltImage, digest, entry, layer_of
from shoal.testing.registry import TAG, USER, ImageRegistry
from shoal.testing.waiting import eventually

PACKED = [digest(each) for each in IMAGE.packed]
CONFIG = digest(IMAGE.settings)


async def pulled(images: ImageAdder, served: ImageRegistry, name: str = "shop/web", **more: Any) -> KeptImage:
    return await images.pull(f"{served.host}/{name}:{TAG}", more.pop("credentials", ()), **more)


async def refused(images: ImageAdder, served: ImageRegistry, name: str = "shop/web", **more: Any) -> ImageFailure:
    with pytest.raises(ImageFailure) as failure:
        await pulled(images, served, name, **more)
    return failure.value


def blobs(served: ImageRegistry) -> list[str]:
    return [path.rpartition("/")[2] for path, _, _ in served.asked if "/blobs/" in path]


def assert_nothing_is_left(images: ImageAdder) -> None:
    folder = images.store.config.folder
    assert not images.store.index.images()
    assert not tree(folder / "work") and not list((folder / "layers").glob("*/*"))


async def test_an_image_is_fetched_unpacked_and_found_by_all_its_names(tmp_path: Path) -> None:
    images, said = adder(tmp_path), list[PullProgress]()
    with registry() as served:
        found = await pulled(images, served, progress=said.append)
    store = images.store
    names = (f"{served.host}/shop/web:1", f"{served.host}/shop/web@{digest(IMAGE.manifest)}")
    assert found.names == names and all(store.index.find(each) == found for each in (*names, CONFIG))
    upper, lower = store.layers_of(found) or ()
    assert tree(lower) == {"bin", "bin/tool", "old"} and tree(upper) == {"old", "new"}
    image = found.image()
    assert (image.id, image.command, image.user) == (CONFIG, ("/bin/tool",), "1000")
    assert image.env == (("A", "b=c"), ("EMPTY", "")) and image.size_bytes == 360_001
    assert said[-1].done_bytes == said[-1].total_bytes == sum(map(len, IMAGE.packed))
    assert not tree(store.config.folder / "blobs")


async def test_a_layer_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    other = BuiltImage((*IMAGE.layers, layer_of(entry("more"))), IMAGE.config)
    images = adder(tmp_path)
    with registry() as served:
        await pulled(images, served)
        served.asked.clear()
        await pulled(images, served)
        assert not blobs(served)  # not even the configuration
        served.images = (other,)
        found = await pulled(images, served)
        assert blobs(served) == [digest(other.settings), digest(other.packed[2])]
    before = images.store.index.images()[CONFIG]
    assert found.names[0] not in before.names and found.names[0] == f"{served.host}/shop/web:1"  # the tag has moved


async def test_two_pulls_at_once_fetch_each_layer_once(tmp_path: Path) -> None:
    with registry() as served:
        await asyncio.gather(*(pulled(adder(tmp_path), served) for _ in range(3)))  # as nodes of one cluster do
        assert sorted(each for each in blobs(served) if each != CONFIG) == sorted(PACKED)


async def test_tokens_are_got_for_each_repository_with_the_credentials_of_pull_secrets(tmp_path: Path) -> None:
    with registry(names=("shop/web", "private/web"), tokens=True) as served:
        await pulled(adder(tmp_path / "a"), served)
        known = RegistryCredentials(server=f"https://{served.host}/v1/", username=USER[0], password=USER[1])
        wrong = RegistryCredentials(server=f"{served.host}/private", username=USER[0], password="other")
        elsewhere = RegistryCredentials(server="registry.example", username="x", password="y")
        await pulled(adder(tmp_path / "b"), served, "private/web", credentials=(elsewhere, wrong, known))
        failure = await refused(adder(tmp_path / "c"), served, "private/web", credentials=(elsewhere,))
        assert failure.fault is ImageFault.PULL and "check imagePullSecrets" in str(failure)
        assert {kind for path, _, kind in served.asked if "/blobs/" in path} == {"Bearer"}


async def test_basic_credentials_work_and_without_them_the_fix_is_said(tmp_path: Path) -> None:
    with registry(names=("private/web",)) as served:
        failure = await refused(adder(tmp_path), served, "private/web")
        assert "without credentials" in str(failure) and "imagePullSecrets" in str(failure)
        known = RegistryCredentials(server=served.host, username=USER[0], password=USER[1])
        await pulled(adder(tmp_path), served, "private/web", credentials=(known,))


async def test_the_image_for_this_machine_is_chosen(tmp_path: Path) -> None:
    strange = BuiltImage(IMAGE.layers, {"Cmd": ["strange"]}, "s390x")
    with registry(strange, IMAGE) as served:
        assert (await pulled(adder(tmp_path), served)).image().command == ("/bin/tool",)
    with registry(strange, BuiltImage(IMAGE.layers, {}, "riscv64")) as served:
        failure = await refused(adder(tmp_path), served)
    assert f"no image for linux/{ARCHITECTURE}" in str(failure) and "linux/riscv64, linux/s390x" in str(failure)
    with registry(strange) as served:
        assert f"is for linux/s390x, this machine is linux/{ARCHITECTURE}" in str(
            await refused(adder(tmp_path), served)
        )


async def test_a_broken_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    with registry() as served:
        served.faults.cut = {PACKED[1]: [70_000, 80_000, 90_000]}
        await pulled(adder(tmp_path, attempts=1), served)  # as long as something comes, attempts do not count
        ranges = [asked for path, asked, _ in served.asked if path.endswith(PACKED[1])]
    assert ranges == ["", "bytes=70000-", "bytes=150000-", "bytes=240000-"]


async def test_a_broken_download_goes_on_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    with registry() as served:
        served.faults.cut = {PACKED[1]: [70_000]}
        served.faults.stall = {PACKED[1]: 1}
        pulling = asyncio.ensure_future(pulled(adder(tmp_path), served))
        part = tmp_path / "images" / "blobs" / PACKED[1][7:]
        await eventually(lambda: part.exists() and part.stat().st_size >= 70_000)
        pulling.cancel()
        await asyncio.wait({pulling})
        served.asked.clear()
        served.faults.stall.clear()
        await pulled(adder(tmp_path), served)
        ((_, begins, _),) = [each for each in served.asked if each[0].endswith(PACKED[1])]
        assert int(begins.removeprefix("bytes=").removesuffix("-")) >= 70_000


async def test_a_registry_without_ranges_sends_the_layer_again(tmp_path: Path) -> None:
    with registry() as served:
        served.faults.cut, served.faults.no_ranges = {PACKED[0]: [100]}, True
        await pulled(adder(tmp_path), served)


async def test_a_registry_that_stalls_is_given_up_with_its_name(tmp_path: Path) -> None:
    with registry() as served:
        served.faults.stall = {PACKED[0]: 9}
        failure = await refused(adder(tmp_path, stall_s=0.2, attempts=1), served)
        assert failure.fault is ImageFault.REGISTRY and "sent nothing more of its answer for 0.2 s" in str(failure)
        served.faults.stall = {PACKED[0]: 1}
        await pulled(adder(tmp_path, stall_s=0.2), served)  # once is not the end


@pytest.mark.parametrize("name", [PACKED[0], CONFIG], ids=["layer", "configuration"])
async def test_content_with_another_digest_is_refused_and_not_kept(tmp_path: Path, name: str) -> None:
    images = adder(tmp_path)
    with registry() as served:
        honest = served.blobs[name]
        for lie in (honest[:-1] + b"!", honest[:-1], honest + b"!"):
            served.faults.lies = {name: lie}
            failure = await refused(images, served)
            assert "digest" in str(failure) or "more bytes" in str(failure) or "ended 1 bytes early" in str(failure)
            assert CONFIG not in images.store.index.images()
        served.faults.lies.clear()
        await pulled(images, served)


async def test_a_manifest_with_another_digest_is_refused(tmp_path: Path) -> None:
    other = BuiltImage(IMAGE.layers, {"Cmd": ["other"]})
    with registry(BuiltImage((), {}, "s390x"), IMAGE) as served:
        served.faults.lies = {digest(IMAGE.manifest): other.manifest}
        assert "sent a manifest with the digest" in str(await refused(adder(tmp_path), served))


async def test_a_configuration_that_lies_about_a_layer_leaves_nothing(tmp_path: Path) -> None:
    lying = BuiltImage((IMAGE.layers[0], layer_of(entry("other"))))
    swapped = dict(lying.blobs)
    swapped[digest(lying.packed[1])] = lying.packed[1]
    images = adder(tmp_path)

    class Lying(BuiltImage):
        @property
        def settings(self) -> bytes:
            return IMAGE.settings

    with registry(Lying(lying.layers, {})) as served:
        failure = await refused(images, served)
    assert "the layer's content is" in str(failure) and "the image says" in str(failure)
    assert not images.store.index.images() and not tree(tmp_path / "images" / "work")


async def test_a_busy_registry_is_asked_again_and_a_broken_one_is_unavailable(tmp_path: Path) -> None:
    with registry() as served:
        served.faults.fail = [503, 429, 500]
        await pulled(adder(tmp_path), served)
        served.faults.fail = [503] * 5
        assert (failure := await refused(adder(tmp_path), served)).fault is ImageFault.REGISTRY
        assert "answered 503" in str(failure)


async def test_what_is_missing_or_unreachable_says_so(tmp_path: Path) -> None:
    with registry() as served:
        assert "shop/other:1 not found" in str(await refused(adder(tmp_path), served, "shop/other"))
    failure = await refused(adder(tmp_path, attempts=1), served)
    assert failure.fault is ImageFault.REGISTRY and "connection refused" in str(failure)


async def test_layers_that_are_refused_leave_nothing(tmp_path: Path) -> None:
    images = adder(tmp_path)
    with registry(BuiltImage((IMAGE.layers[0], layer_of(entry("../x"))))) as served:
        assert "'../x' leads out of the layer" in str(await refused(images, served))
    await images.store.collect(keep_s=0)
    assert_nothing_is_left(images)
