"""Real images in sandboxes: their files and nothing of the machine, and everything that they say about their programs."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandbox_nodes import OnNode, SandboxNode

from shoal.base.clock import RealClock
from shoal.node.runtime.images.adding import ImageAdder, this_platform
from shoal.node.runtime.images.config import ImageConfig
from shoal.node.runtime.images.source import StoreImages
from shoal.node.runtime.images.store import ImageStore
from shoal.node.runtime.model import ContainerPhase, Security, StartFailure
from shoal.node.runtime.process.images import load_table
from shoal.node.runtime.process.table_images import TableImages
from shoal.node.runtime.sandbox.ids import choose
from shoal.testing.images import BuiltImage, entry, folder, hard_link, layer_of, link, saved

BUSYBOX = Path(shutil.which("busybox") or "/bin/busybox")
PASSWD = b"root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/home/web:/bin/sh\n"
pytestmark = pytest.mark.skipif(
    not BUSYBOX.exists() or b"/ld-linux" in BUSYBOX.read_bytes()[:4096], reason="needs busybox-static"
)


def an_image(*more: bytes, **config: Any) -> BuiltImage:
    """Busybox, a few files, and in the second layer what it deletes and replaces."""
    lower = layer_of(
        folder("bin"), entry("bin/busybox", BUSYBOX.read_bytes(), mode=0o755), link("bin/sh", "busybox"),
        folder("etc"), entry("etc/passwd", PASSWD), entry("etc/group", b"root:x:0:\nstaff:x:50:web\n"),
        link("etc/resolv.conf", "../missing/resolv.conf"),
        entry("gone", b"1"), folder("d"), entry("d/lower", b"1"), entry("replaced", b"1"), folder("f"), entry("f/x", b"1"),
        folder("data", mode=0o1777), entry("data/given", b"1"),
    )  # fmt: skip
    upper = layer_of(
        entry(".wh.gone"), folder("d"), entry("d/.wh..wh..opq"), entry("d/upper", b"2"), hard_link("d/again", "d/upper"),
        entry("replaced", b"2"), entry("f", b"2"),
    )  # fmt: skip
    return BuiltImage((lower, upper, *more), {"Env": ["PATH=/bin"], "Cmd": ["sh"], **config})


OnImages = Callable[..., AbstractAsyncContextManager[SandboxNode]]


@pytest.fixture
def on_images(on_node: OnNode, tmp_path: Path) -> OnImages:
    """A node that has an image and runs it in all containers."""

    @asynccontextmanager
    async def node(image: BuiltImage, **config: Any) -> AsyncIterator[SandboxNode]:
        cluster, clock = tmp_path / "cluster", RealClock()
        cluster.mkdir(exist_ok=True)
        ids = config.get("ids", "auto")
        store = ImageStore(
            ImageConfig(folder=cluster / "images"), lambda: choose(cluster / "sandbox", ids), clock=clock, in_use=set
        )
        adder = ImageAdder(store, clock, this_platform())
        await adder.load(saved(image, tmp_path / "image.tar", "test/image:1"))
        roots = StoreImages(TableImages(load_table()), store, adder, clock=clock)
        async with on_node(roots=roots, **config) as found:
            found.image = await roots.image("test/image:1")
            yield found

    return node


SHOW = (
    "ls -d /usr /lib* /home /opt /gone /f/x /d/lower 2>/dev/null; cat /replaced /d/upper /d/again /f;"
    "echo; ls /d; cat /etc/hostname; grep -c $(hostname) /etc/hosts; test -L /etc/resolv.conf || echo own"
)
SHOWN = "2222\nagain\nupper\n{name}\n1\nown\n"


@pytest.mark.parametrize("overlay", ["auto", "off"])
async def test_a_container_sees_the_layers_of_its_image_and_nothing_of_the_machine(
    on_images: OnImages, overlay: str
) -> None:
    async with on_images(an_image(), overlay=overlay) as node:
        pod = await node.pod()
        assert (
            await node.sh(pod, "[ /d/upper -ef /d/again ] && stat -c %h /d/upper; find / -xdev -name '.wh*'") == "2\n"
        )


@pytest.mark.parametrize("overlay", ["auto", "off"])
async def test_what_a_container_writes_is_its_own(on_images: OnImages, overlay: str) -> None:
    async with on_images(an_image(), overlay=overlay) as node:
        pod = await node.pod()
        assert await node.sh(pod, "echo mine > /replaced; rm -r /d; cat /replaced; ls /d") == (
            "mine\nls: /d: No such file or directory\n"
        )
        assert await node.sh(pod, "cat /replaced; ls /d") == "2again\nupper\n"


async def test_an_image_runs_where_pods_have_one_user(on_images: OnImages) -> None:
    image = an_image(layer_of(entry("owned", b"x", uid=1000, gid=1001)))
    async with on_images(image, ids="one") as node:
        pod = await node.pod()
        assert await node.sh(pod, SHOW) == SHOWN.format(name=pod.name)
        assert await node.sh(pod, "stat -c '%u %g' /owned; echo x >> /owned && id -u") == "0 0\n0\n"


@pytest.mark.usefixtures("many_users")
async def test_owners_of_files_are_the_users_of_the_image(on_images: OnImages) -> None:
    image = an_image(layer_of(entry("own", b"x", uid=1000, gid=1001, mode=0o600), entry("root", b"y", mode=0o600)))
    async with on_images(image) as node:
        pod = await node.pod()
        said = await node.sh(
            pod, "cat /own; cat /root 2>/dev/null; stat -c '%u %g' /own /root", security=Security(user=1000)
        )
        assert said == "x1000 1001\n0 0\n"


@pytest.mark.usefixtures("many_users")
async def test_user_environment_folder_and_volumes_of_the_image_count(on_images: OnImages) -> None:
    image = an_image(
        User="web", Env=["PATH=/bin", "A=image", "B=image"], WorkingDir="/srv/here", Volumes={"/data": {}},
        Entrypoint=["sh", "-c"], Cmd=["id -u; id -g; id -G; pwd; echo $A $B $HOME; touch /data/x; cat /data/given"],
    )  # fmt: skip
    async with on_images(image) as node:
        pod = await node.pod()
        more = {"env": (("A", "pod"),), "security": Security(read_only_root=True)}
        ended = await node.exited(await node.run(pod, **more))
        assert await node.output(ended) == "1000\n1001\n1001 50\n/srv/here\npod image /home/web\n1"
        said = await node.sh(
            pod, "touch /x 2>/dev/null || pwd", working_dir="/tmp", security=Security(user=0, read_only_root=True)
        )
        assert said == "/tmp\n"


@pytest.mark.usefixtures("many_users")
async def test_a_user_that_the_image_does_not_have_is_said(on_images: OnImages) -> None:
    async with on_images(an_image(User="nobody-here")) as node:
        with pytest.raises(StartFailure, match="unable to find user nobody-here: no matching entries"):
            await node.run(await node.pod(), "true")


async def test_the_stop_signal_of_the_image_is_sent(on_images: OnImages) -> None:
    async with on_images(an_image(StopSignal="SIGUSR1")) as node:
        pod = await node.pod()
        script = "trap 'echo asked; exit 7' USR1; trap '' TERM; echo up; while true; do sleep 0.1; done"
        container = await node.run(pod, "sh", "-c", script)
        await node.says(container, "up")
        ended = await node.runtime.stop(container.id, grace_s=20)
        assert ended.phase is ContainerPhase.EXITED and ended.exit_code == 7


async def test_an_image_of_many_layers_can_be_stacked(on_images: OnImages) -> None:
    many = [layer_of(entry(f"layer/{n}", b"x"), entry("last", str(n).encode())) for n in range(40)]
    image = an_image(*many, many[3])  # and one of them twice
    async with on_images(image) as node:
        assert await node.sh(await node.pod(), "ls /layer | wc -l; cat /last") == "40\n3"


@pytest.mark.parametrize("name", ["proc", "dev", "sys", "tmp", "etc", "run", "srv"])
async def test_attacks_by_links_where_the_runtime_puts_its_files_reach_nothing(on_images: OnImages, name: str) -> None:
    upper = layer_of(link(name, "/data" if name != "srv" else "/proc/1/root/data"))
    image = an_image(WorkingDir="/srv")
    async with on_images(replace(image, layers=(image.layers[0], upper))) as node:
        try:
            assert "1" in await node.sh(await node.pod(), "cat /data/given; echo 1; echo x > /data/mark")
        except StartFailure as failure:
            assert f"/{name}" in str(failure)
    assert not Path("/data").exists() and not Path("/etc/given").exists()
