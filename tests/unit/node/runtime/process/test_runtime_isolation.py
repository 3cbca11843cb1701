"""What a pod cannot see: the state directories of Shoal, and the inside of processes that are not its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.pod_forks import PodForks
from shoal.node.forks.client import NO_FORKS, ForkClient
from shoal.node.runtime.model import Mount, Security, StartFailure
from shoal.node.runtime.process import launch
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.records import inherited_bytes
from shoal.node.runtime.process.shim import system
from shoal.testing import forked_code

Run = Callable[..., AbstractAsyncContextManager[Any]]
SECRET = "KEY-OF-THE-CLUSTER"
SHIM = Path(launch.__file__).parent
MODES = [pytest.param("auto", id="root" if os.geteuid() == 0 else "user"), "user"]

# Tries everything that may lead to the secret, and prints where it was found.
TRY = r"""
import ctypes, os, sys
secret = sys.argv[1].encode()
paths = sys.argv[3:]
def look(path):
    try:
        with open(path, "rb") as file:
            if secret in file.read(1 << 20):
                print("FOUND", path)
    except OSError:
        pass
def walk(folder):
    for path in paths:
        look(folder + path)
walk("")
libc = ctypes.CDLL(None, use_errno=True)
for path in paths:  # below the cover: unmount it, clone what is under it, mount something else
    for above in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        libc.umount2(above.encode(), 2)
    fd = libc.syscall(428, -100, b"/", 1)
    if fd >= 0:
        look(f"/proc/self/fd/{fd}{path}")
walk("")
for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
    if int(pid) in (os.getpid(), os.getppid()):
        continue
    for place in ("root", "cwd/..", "cwd/../.."):
        walk(f"/proc/{pid}/{place}")
    for part in ("environ", "auxv"):
        look(f"/proc/{pid}/{part}")
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            print("FOUND", os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        pass
if libc.unshare(0x10000000 | 0x20000) == 0:  # as root of a namespace of its own
    for path in paths:
        libc.umount2(os.path.dirname(path).encode(), 2)
        walk("")
    fd = libc.syscall(428, -100, b"/", 1)
    if fd >= 0:
        walk(f"/proc/self/fd/{fd}")
print("tried")
"""


@pytest.fixture
def state(tmp_path: Path) -> list[Path]:
    return state_in(tmp_path)


def state_in(folder: Path) -> list[Path]:
    """Files that no pod may read: of this cluster, of its neighbour, of the control plane."""
    files = [
        folder / "cluster" / "pki" / "ca.key", folder / "cluster" / "kubeconfig", folder / "cluster" / "store.db",
        folder / "home" / "clusters" / "us-1" / "kubeconfig", folder / "home" / "control" / "master.key",
    ]  # fmt: skip
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SECRET)
    return files


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process of this user with the secret in its environment."""
    with subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "SECRET": SECRET}) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("forked", [False, True], ids=["executed", "forked"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_pod_finds_no_key_token_or_kubeconfig_and_cannot_look_into_other_processes(
    on_process_node: Run, tmp_path: Path, state: list[Path], neighbour: int, mode: str, forks: PodForks, forked: bool
) -> None:
    covered = (tmp_path / "cluster", tmp_path / "home", tmp_path / "missing")
    client = ForkClient(forks.socket) if forked else NO_FORKS
    async with on_process_node(namespaces=mode, covered=covered, forks=client) as node:
        await node.needs_namespaces()
        other = await node.sh(f"echo {SECRET} > mine; sleep 600", name="other", env=(("SECRET", SECRET),))
        tried = (TRY, SECRET, "--", *map(str, state), str(node.folder(other) / "work" / "mine"))
        command, own_code = ("python3", "-c", *tried), (sys.executable, "-m", forked_code.__name__, *tried)
        env = (
            ("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin"),
            ("PYTHONPATH", str(Path(shoal.__file__).parents[1])),
        )
        container = await node.run(*(own_code if forked else command), env=env)
        await node.exited(container)
        assert (inherited_bytes(node.folder(container)) > 0) is forked
        assert await node.output(container) == "tried\n"
        session, code = await node.exec(other, *command, stdout=True)
        assert code == 0
        own = {f"FOUND {node.folder(other) / 'work' / 'mine'}"}  # its own, where it works
        assert set(session.splitlines()) - own == {"tried"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_pod_works_in_its_own_folder_and_with_its_volumes_as_before(
    on_process_node: Run, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "cluster" / "volumes" / "data").mkdir(parents=True)
    volumes = (tmp_path / "cluster" / "volumes",)
    async with on_process_node(namespaces=mode, covered=(tmp_path / "cluster",), volumes=volumes) as node:
        await node.needs_namespaces()
        script = (
            "echo kept > file; mkdir -p a b; mv file a/file; mv a/file b/file; ln b/file a/linked; cat $(pwd)/a/linked; "
            "echo new > /data/file; mv b/file /data/moved; mkfifo pipe; ls $(dirname $(pwd))"
        )
        mounts = (Mount(host_path=str(tmp_path / "cluster" / "volumes" / "data"), container_path="/data", volume="d"),)
        container = await node.sh(script, mounts=mounts)
        ended = await node.exited(container)
        assert (ended.exit_code, await node.output(container)) == (0, "kept\nroot\nwork\n")
        assert (node.folder(container) / "work" / "a" / "linked").read_text() == "kept\n"
        data = tmp_path / "cluster" / "volumes" / "data"
        assert {path.name: path.read_text() for path in data.iterdir()} == {"file": "new\n", "moved": "kept\n"}


async def test_a_volume_does_not_lead_into_the_state_either(
    on_process_node: Run, tmp_path: Path, state: list[Path]
) -> None:
    def mounted(path: Path) -> tuple[Mount, ...]:
        return (Mount(host_path=str(path), container_path="/data", volume="host"),)

    async with on_process_node(covered=(tmp_path / "cluster", tmp_path / "home")) as node:
        await node.needs_namespaces()
        (tmp_path / "link").symlink_to(state[0].parent)
        for number, path in enumerate((tmp_path / "cluster", state[0].parent, state[-1], tmp_path / "link")):
            with pytest.raises(StartFailure, match="part of Shoal's state, which pods do not see"):
                await node.sh("cat /data/*", name=f"c{number}", mounts=mounted(path))
        script = f"cat /data/{state[0].relative_to(tmp_path)}; ls -A /data/home"
        inside = await node.sh(script, name="inside", mounts=mounted(tmp_path))
        await node.exited(inside)
        assert await node.output(inside) == ""  # a folder above brings the covers along
        privileged = await node.sh(
            "cat /data", name="privileged", mounts=mounted(state[0]), security=Security(privileged=True)
        )
        await node.exited(privileged)
        assert await node.output(privileged) == SECRET


async def test_a_subpath_that_became_a_link_after_the_check_is_not_mounted(
    on_process_node: Run, tmp_path: Path
) -> None:
    """A container of the pod swaps the folder between the agent's check and the mount."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume / "part", outside):
        folder.mkdir(parents=True)
    (outside / "key").write_text(SECRET)
    mount = Mount(host_path=str(volume / "part"), container_path="/data", volume="v", within=str(volume))
    async with on_process_node() as node:
        await node.needs_namespaces()
        checked = await node.create("cat", "/data/key", mounts=(mount,))
        (volume / "part").rmdir()
        (volume / "part").symlink_to(outside)
        with pytest.raises(StartFailure, match=r"opening .*/volume/part: Invalid cross-device link"):
            await node.runtime.start(checked.id)
        assert await node.output(checked) == ""
        (volume / "part").unlink()
        (volume / "inner").mkdir()
        (volume / "inner" / "key").write_text("mine")
        (volume / "part").symlink_to("inner")
        again = await node.run("cat", "/data/key", name="again", mounts=(mount,))
        await node.exited(again)
        assert await node.output(again) == "mine"


async def test_a_privileged_pod_keeps_its_capabilities(on_process_node: Run) -> None:
    async with on_process_node() as node:
        await node.needs_namespaces()
        script = "grep CapBnd /proc/self/status"
        plain = await node.sh(script)
        privileged = await node.sh(script, name="privileged", security=Security(privileged=True))
        for container in (plain, privileged):
            await node.exited(container)
        mine = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd"))
        assert int((await node.output(privileged)).split()[1], 16) == int(mine.split()[1], 16)
        admin = 1 << 21
        assert not int((await node.output(plain)).split()[1], 16) & admin


def test_what_is_missing_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def gap(mode: str) -> str:
        found = launch.isolation_gap(mode)
        return "" if found is None else found.what

    assert "pods can read every file of this user" in gap("")
    assert gap("user") == ""
    monkeypatch.setattr(system, "has_landlock", lambda: False)
    assert "no Landlock" in gap("root")
    assert gap("user") == ""


async def test_without_namespaces_the_same_attempts_succeed(
    on_process_node: Run, state: list[Path], neighbour: int
) -> None:
    async with on_process_node(namespaces="off") as node:
        container = await node.run(sys.executable, "-c", TRY, SECRET, "--", *map(str, state))
        await node.exited(container)
        found = (await node.output(container)).splitlines()
        assert {f"FOUND {path}" for path in state} <= set(found)
        assert f"FOUND /proc/{neighbour}/environ" in found


async def test_a_node_without_namespaces_says_so_at_its_start(
    on_process_node: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    async with on_process_node(namespaces="off"):
        pass
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    said = [line for line in lines if line["message"] == "the isolation of pods is incomplete"]
    assert said and "every file of this user" in said[0]["reason"]


def test_folders_inside_others_are_covered_once_and_python_in_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "home" / "clusters" / "eu" / "nodes" / "one"
    root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    config = ProcessConfig(root=root, covered=(tmp_path / "home", tmp_path / "link", tmp_path / "missing"))
    assert launch.covered_folders(config) == [str(tmp_path / "home")]
    assert launch.covered_folders(ProcessConfig(root=root)) == [str(root)]


ORDINARY = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from shim.child import spawn
config = json.loads(sys.argv[2])
null = os.open("/dev/null", os.O_RDWR)
pid = spawn(config, config["argv"], (null, 1, 2))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user then")
def test_the_same_holds_for_an_ordinary_user(neighbour: int) -> None:
    """With the machine's Python: this one may be installed where only root can read it."""
    with tempfile.TemporaryDirectory(prefix="shoal-user-") as place:  # pytest closes its own folders to others
        _as_an_ordinary_user(Path(place), 54321)


def _as_an_ordinary_user(place: Path, user: int) -> None:
    state = state_in(place)
    folder = place / "cluster" / "nodes" / "one"
    (folder / "work").mkdir(parents=True)
    (folder / "root").mkdir()
    shim = place / "programs"
    shutil.copytree(SHIM / "shim", shim / "shim")
    for path in (place, *place.rglob("*")):
        os.chown(path, user, user)
    python = "/usr/bin/python3"
    config = {
        "argv": [python, "-c", TRY, SECRET, "--", *map(str, state)], "env": {"PATH": "/usr/bin:/bin"},
        "cwd": str(folder / "work"), "namespaces": "user", "hostname": "pod", "scratch": str(folder / "root"),
        "covered": [str(place / "cluster"), str(place / "home")], "kept": [str(folder / "work")],
        "confined": True, "sources": [], "mounts": [], "limits": [], "groups": None, "group": None, "user": None,
    }  # fmt: skip
    done = subprocess.run(
        [python, "-I", "-S", "-c", ORDINARY, str(shim), json.dumps(config)],
        user=user, group=user, extra_groups=[], capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("tried\n", 0), done.stderr
