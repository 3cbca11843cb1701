"""Images from Debian's registry: `docker-registry` serves what was pushed to it, and a pod's program runs from it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.node.runtime.images.adding import ImageAdder, this_platform
from shoal.node.runtime.images.config import ImageConfig
from shoal.node.runtime.images.store import ImageStore
from shoal.node.runtime.sandbox.ids import choose
from shoal.testing.images import INDEX, MANIFEST, BuiltImage, digest, entry, index_of, layer_of
from shoal.testing.waiting import eventually

PROGRAM = shutil.which("docker-registry")
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="needs docker-registry (Debian: apt-get install docker-registry)"
)


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    port = any_free("127.0.0.1")
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: error}}\n"
    )
    with subprocess.Popen([str(PROGRAM), "serve", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def put(url: str, content: bytes, kind: str) -> None:
    request = Request(url, content, {"Content-Type": kind}, method="PUT")
    with urlopen(request, timeout=10):
        pass


def push(host: str, name: str, *images: BuiltImage) -> None:
    """As a client pushes: blobs, manifests, and the index of several platforms."""
    for image in images:
        for each, content in image.blobs.items():
            with urlopen(Request(f"http://{host}/v2/{name}/blobs/uploads/", b"", method="POST"), timeout=10) as answer:
                place = answer.headers["Location"]
            put(f"{place}{'&' if '?' in place else '?'}digest={each}", content, "application/octet-stream")
        put(f"http://{host}/v2/{name}/manifests/{digest(image.manifest)}", image.manifest, MANIFEST)
    put(f"http://{host}/v2/{name}/manifests/1", index_of(images), INDEX)


def answers(host: str) -> bool:
    try:
        with urlopen(f"http://{host}/v2/", timeout=5):
            return True
    except OSError:
        return False


async def test_an_image_of_two_platforms_comes_from_a_real_registry(tmp_path: Path) -> None:
    image = BuiltImage((layer_of(entry("f", b"x" * 3_000_000)), layer_of(entry("g", b"y"))), {"Cmd": ["/f"]})
    store = ImageStore(
        ImageConfig(folder=tmp_path / "images"),
        lambda: choose(tmp_path / "sandbox", "auto"),
        clock=RealClock(),
        in_use=set,
    )
    adder = ImageAdder(store, RealClock(), this_platform())
    with registry(tmp_path) as host:
        await eventually(lambda: answers(host), timeout_s=15)
        push(host, "shop/web", BuiltImage(image.layers, {"Cmd": ["no"]}, "s390x"), image)
        found = await adder.pull(f"{host}/shop/web:1", ())
        assert found.id == digest(image.settings) and found.image().command == ("/f",)
        assert (await adder.pull(f"{host}/shop/web@{digest(image.manifest)}", ())).id == found.id
    upper, lower = store.layers_of(found) or ()
    assert (upper / "g").read_bytes() == b"y" and (lower / "f").stat().st_size == 3_000_000
