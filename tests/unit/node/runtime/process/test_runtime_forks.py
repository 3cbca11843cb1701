"""Containers whose shim and program a fork server has forked: nothing tells them from those that are executed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.pod_forks import PodForks
from shoal.node.forks.client import NO_FORKS, ForkClient
from shoal.node.runtime.model import ContainerResources, Mount, Security
from shoal.node.runtime.process.records import inherited_bytes
from shoal.testing import forked_code
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]
PYTHONPATH = ("PYTHONPATH", str(Path(shoal.__file__).parents[1]))  # of programs of ours, as in the table of images
MODES = ["auto", "user"] if os.geteuid() == 0 else ["user"]
SECRET = "KEY-OF-THE-USER"

# What a process can tell of itself
FACTS = r"""
import json, os, resource, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kept = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigIgn",
        "SigBlk", "SigCgt", "Umask")
def look(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return type(error).__name__
def inside(path):
    return path.replace(os.environ["SHOAL_CONTAINER_ID"], "ID").replace(os.environ["POD_IP"], "IP")
environment = open("/proc/self/environ", "rb").read().decode().strip("\0").split("\0")
for name in ("SigIgn", "SigBlk", "SigCgt"):  # without two that the C library keeps for itself
    status[name] = f"{int(status[name], 16) & ~(3 << 31):x}"
print(json.dumps({
    **{name: status[name].split() for name in kept},
    "files": sorted(name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "seen environment": sorted(map(inside, environment)),
    "environment": sorted(inside(f"{name}={text}") for name, text in os.environ.items()),
    "arguments": sys.argv, "path": [inside(each) for each in sys.path], "cwd": inside(os.getcwd()),
    "limits": [resource.getrlimit(each) for each in range(16)], "session": os.getsid(0) == os.getpid(),
    "host": os.uname().nodename == inside(os.environ["HOSTNAME"]), "interrupt": str(signal.getsignal(signal.SIGINT)),
    "child": str(signal.getsignal(signal.SIGCHLD)), "owner of files": os.stat("/proc/self/fd").st_uid,
    "mounts": sorted(inside(line.split(" - ")[1] + line.split()[4]) for line in open("/proc/self/mountinfo")),
    "terminals": [os.isatty(number) for number in range(3)], "buffered": [
        (each.line_buffering, each.errors, each.encoding, each.name) for each in (sys.stdout, sys.stderr, sys.stdin)],
    "main": __name__, "gc": __import__("gc").isenabled(), "threads": look("/proc/self/task").__len__(),
    "user namespace": open("/proc/self/uid_map").read().split(), "dumpable": look("/proc/self/map_files") != "x",
}, default=str), flush=True)
"""


def code(text: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", forked_code.__name__, text, *arguments)


def was_forked(node: Any, container: Any) -> bool:
    return inherited_bytes(node.folder(container)) > 0


@pytest.mark.parametrize("mode", [*MODES, "off"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain"),
        pytest.param({"security": Security(privileged=True)}, id="privileged"),
        pytest.param({"tty": True, "stdin": True}, id="terminal"),
        pytest.param({"resources": ContainerResources(memory_limit_bytes=1 << 30)}, id="limited"),
    ],
)
async def test_a_forked_program_has_the_files_rights_signals_and_environment_of_one_that_is_executed(
    on_process_node: Run, tmp_path: Path, forks: PodForks, mode: str, more: dict[str, Any]
) -> None:
    found = []
    for client in (ForkClient(forks.socket), NO_FORKS):
        async with on_process_node(namespaces=mode, covered=(tmp_path / "home",), forks=client) as node:
            if mode != "off":
                await node.needs_namespaces()
            container = await node.run(*code(FACTS, "one", "two words"), env=(PYTHONPATH, ("ODD", "a=b\nc")), **more)
            ended = await node.exited(container)
            said = await node.output(container)
            assert ended.exit_code == 0, said
            assert was_forked(node, container) is (client is not NO_FORKS)
            assert said.startswith("{"), said
            found.append(json.loads(said))
    assert found[0] == found[1]
    assert found[0]["files"] == ["0", "1", "2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as another user")
@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_a_forked_program_of_another_user_has_no_rights_left(
    on_process_node: Run, forks: PodForks, mode: str
) -> None:
    """It cannot be compared with one that is executed where only root can read the interpreter."""
    security = Security(user=54321, group=54321, supplemental_groups=(54322,))
    async with on_process_node(namespaces=mode, forks=ForkClient(forks.socket)) as node:
        container = await node.run(*code(FACTS), env=(PYTHONPATH,), security=security)
        ended = await node.exited(container)
        said = await node.output(container)
        assert ended.exit_code == 0 and was_forked(node, container), said
        found = json.loads(said)
    assert found["Uid"] == found["Gid"] == ["54321"] * 4
    assert found["Groups"] == ["54322"]
    assert {found[name][0] for name in ("CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert found["owner of files"] == 54321  # it can look into its own folder of /proc
    assert found["files"] == ["0", "1", "2"]


async def test_a_forked_program_cannot_ask_for_other_forks(
    on_process_node: Run, tmp_path: Path, forks: PodForks
) -> None:
    async with on_process_node(covered=(tmp_path / "home",), forks=ForkClient(forks.socket)) as node:
        await node.needs_namespaces()
        reach = "import os, sys; print(os.path.exists(sys.argv[1]))"
        container = await node.run(*code(reach, str(forks.socket)), env=(PYTHONPATH,))
        await node.exited(container)
        assert was_forked(node, container)
        assert await node.output(container) == "False\n"


async def test_nothing_of_the_users_environment_is_in_the_memory_of_a_forked_program(
    on_process_node: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_KEY", f"{SECRET}-OF-THE-USER")
    search = r"""
import sys
secret, found = sys.argv[1].encode()[::-1], 0
for line in open("/proc/self/maps"):
    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
    if line.split()[1].startswith("r") and "[v" not in line:
        with open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(begin)
            try:
                found += memory.read(end - begin).count(secret)
            except OSError:
                pass
print("found", found > int(sys.argv[2]))
"""
    (tmp_path / "home").mkdir()
    server = PodForks(tmp_path / "home", forked_code.__name__)
    await server.start()
    await eventually(server.socket.exists)
    backwards = f"{SECRET}-OF-THE-USER"[::-1]
    try:
        async with on_process_node(forks=ForkClient(server.socket)) as node:
            for seen, env in ((False, ()), (True, (("GIVEN", f"{SECRET}-OF-THE-USER"),))):
                command = code(search, backwards, "1")  # the search itself holds it once
                container = await node.run(*command, env=(PYTHONPATH, *env), name=f"search-{seen}")
                await node.exited(container)
                assert was_forked(node, container)
                assert await node.output(container) == f"found {seen}\n"
    finally:
        await server.end()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"env": (PYTHONPATH, ("PYTHONUNBUFFERED", "1"))}, "a setting of the interpreter"),
        ({"env": ()}, "other modules may be in its path"),
        ({"env": (PYTHONPATH, ("LD_PRELOAD", ""))}, "a setting of the linker"),
    ],
)
async def test_what_only_a_new_interpreter_can_do_is_executed(
    on_process_node: Run, forks: PodForks, more: dict[str, Any], why: str
) -> None:
    async with on_process_node(forks=ForkClient(forks.socket)) as node:
        container = await node.run(*code("print('done')"), **more)
        assert (await node.exited(container)).exit_code == 0, why
        assert not was_forked(node, container), why
        other = await node.sh("echo done", name="other", env=(PYTHONPATH,))
        await node.exited(other)
        assert [await node.output(each) for each in (container, other)] == ["done\n", "done\n"]
        assert not was_forked(node, other)


async def test_a_program_is_executed_when_a_volume_covers_its_modules(
    on_process_node: Run, tmp_path: Path, forks: PodForks
) -> None:
    (mine := tmp_path / "mine").mkdir()
    async with on_process_node(forks=ForkClient(forks.socket)) as node:
        await node.needs_namespaces()
        mount = Mount(host_path=str(mine), container_path=f"{PYTHONPATH[1]}/shoal/testing", volume="mine")
        container = await node.run(*code("print('ours')"), env=(PYTHONPATH,), mounts=(mount,))
        assert (await node.exited(container)).exit_code == 1
        assert await node.output(container) == ""


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("raise SystemExit(3)", 3), ("raise SystemExit('no')", 1), ("1 / 0", 1), ("pass", 0), ("raise SystemExit", 0),
        ("import os; os.kill(os.getpid(), 15)", 143), ("import os; os.kill(os.getpid(), 2)", 130),
    ],
)  # fmt: skip
async def test_a_forked_program_ends_with_the_exit_code_of_an_interpreter(
    on_process_node: Run, forks: PodForks, text: str, exit_code: int
) -> None:
    async with on_process_node(forks=ForkClient(forks.socket)) as node:
        container = await node.run(*code(f"print('out'); {text}"), env=(PYTHONPATH,))
        assert (await node.exited(container)).exit_code == exit_code
        assert await node.output(container) == ("" if exit_code == 143 else "out\n")


async def test_containers_outlive_the_fork_server_and_later_ones_are_executed(
    on_process_node: Run, forks: PodForks
) -> None:
    async with on_process_node(forks=ForkClient(forks.socket)) as node:
        first = await node.run(*code("import time; time.sleep(60)"), env=(PYTHONPATH,))
        assert forks.process is not None
        os.kill(forks.process.pid, signal.SIGKILL)
        await forks.process.wait()
        second = await node.run(*code("import time; time.sleep(60)"), env=(PYTHONPATH,), name="second")
        assert [was_forked(node, each) for each in (first, second)] == [True, False]
        for each in (first, second):
            await node.runtime.stop(each.id, grace_s=5)
            assert (await node.exited(each)).exit_code == 143


async def test_a_forked_programs_memory_is_what_it_has_itself(on_process_node: Run, forks: PodForks) -> None:
    async with on_process_node(forks=ForkClient(forks.socket)) as node:
        text = "kept = bytearray(50 << 20); import time; print('has', flush=True); time.sleep(60)"
        container = await node.run(*code(text), env=(PYTHONPATH,))
        await node.says(container, "has")
        (stats,) = await node.runtime.stats()
        assert 50 << 20 <= stats.memory_rss_bytes <= 60 << 20
