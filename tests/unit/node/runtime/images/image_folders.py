"""Folders of images, and registries, for the tests here."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.base.clock import Clock, RealClock
from shoal.node.runtime.images.adding import ImageAdder, this_platform
from shoal.node.runtime.images.config import ImageConfig
from shoal.node.runtime.images.store import ImageStore
from shoal.node.runtime.sandbox.ids import choose
from shoal.testing.images import BuiltImage, entry, folder, layer_of
from shoal.testing.registry import ImageRegistry

LAYERS = (
    layer_of(folder("bin"), entry("bin/tool", b"one" * 20000), entry("old", b"1")),
    layer_of(entry(".wh.old"), entry("new", os.urandom(300_000))),
)
IMAGE = BuiltImage(LAYERS, {"Cmd": ["/bin/tool"], "User": "1000", "Env": ["A=b=c", "EMPTY"]})


def adder(base: Path, *, clock: Clock | None = None, in_use: Callable[[], set[str]] = set, **more: Any) -> ImageAdder:
    """Images below a folder, of a cluster whose pods have all users as root, and one user otherwise."""
    used = clock or RealClock()
    config = replace(ImageConfig(folder=base / "images", retry_s=0.01), **more)
    store = ImageStore(config, lambda: choose(base / "sandbox", "auto"), clock=used, in_use=in_use)
    return ImageAdder(store, used, this_platform())


@contextmanager
def registry(
    *images: BuiltImage, names: tuple[str, ...] = ("shop/web",), tokens: bool = False
) -> Iterator[ImageRegistry]:
    found = ImageRegistry(socket.create_server(("127.0.0.1", 0)), images or (IMAGE,), names, {}, tokens=tokens)
    try:
        yield found
    finally:
        found.close()


def tree(path: Path) -> set[str]:
    """Every path below a folder of layers, or of anything."""
    return {str(each.relative_to(path)) for each in path.rglob("*")}
