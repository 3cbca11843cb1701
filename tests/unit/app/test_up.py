"""``shoal up`` and ``shoal down``, with small programs in place of the control plane and the clusters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from shoal.app.children import StartFailed
from shoal.app.commands.down import stop_all
from shoal.app.files import DirectoryLock
from shoal.app.introduction import introduce
from shoal.app.up import UpDeps, cluster_command, control_command, run_up, until_ended
from shoal.app.up_options import UpOptions, parse_regions, remember_regions, remembered_regions
from shoal.base.clock import FakeClock, RealClock
from shoal.base.files import holder_of
from shoal.cli.contexts import Context, current_context
from shoal.cli.rest import Rest
from shoal.errors import ConfigError, ShoalError
from shoal.testing.waiting import eventually_blocking

CONTROL = """
import sys; from pathlib import Path
folder = Path(sys.argv[1]); (folder / "pki").mkdir(exist_ok=True)
(folder / "admin.token").write_text("token"); (folder / "pki" / "ca.crt").write_text("ca")
print("ready https://127.0.0.1:1234", flush=True)
sys.stdin.read()
"""
CLUSTER = """
import sys
print("ready https://127.0.0.1:5678", flush=True)
sys.stdin.read()
"""
UP = """
import asyncio, sys; from pathlib import Path; from shoal.app.up import UpDeps, run_up
from shoal.app.up_options import UpOptions
deps = UpDeps(lambda o: [sys.executable, "-c", sys.argv[2], str(o.control_dir)],
              lambda o, region: [sys.executable, "-c", sys.argv[3]], lambda rest, o: None, welcomes=False)
asyncio.run(run_up(UpOptions(dir=Path(sys.argv[1])), lambda line: print(line, flush=True), deps=deps))
"""


def deps(control: str = CONTROL, cluster: str = CLUSTER) -> UpDeps:
    """Small programs in place of the children."""
    return UpDeps(
        lambda options: [sys.executable, "-c", control, str(options.control_dir)],
        lambda options, region: [sys.executable, "-c", cluster],
        lambda rest, options: None,
        welcomes=False,
    )


async def test_down_ends_the_service_proxy_of_a_cluster_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "clusters" / "eu-1" / "proxy"
    folder.mkdir(parents=True)
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "shoal.node.proxy.serve", str(folder)], check=True, timeout=60
    )
    pid = holder_of(folder / "proxy.lock")
    assert pid is not None
    assert await stop_all(tmp_path, clock=RealClock()) == [f"proxy (process {pid})"]
    assert holder_of(folder / "proxy.lock") is None


class JoinRest:
    """A control plane that knows the agent's token."""

    def __init__(self, url: str) -> None:
        self.context = Context("up", url, "token", "ca")

    def get(self, path: str, **query: str) -> dict[str, object]:
        return {"items": [{"name": "agent-eu-1", "revoked": False}]}

    def request(self, *request: object, **how: object) -> None: ...

    def close(self) -> None: ...


def test_join_files_follow_the_control_plane_to_another_port_and_keep_their_other_urls(tmp_path: Path) -> None:
    options = UpOptions(dir=tmp_path, regions=("eu",))
    path = options.cluster_dir("eu") / "join.json"
    path.parent.mkdir(parents=True)
    one, two, other = "https://127.0.0.1:7400", "https://127.0.0.1:7401", "https://other.example:7400"
    held = {"url": one, "urls": [one, other], "ca": "old", "token": "t"}
    path.write_text(json.dumps(held))
    introduce(cast(Rest, JoinRest(one)), options)
    assert json.loads(path.read_bytes()) == held
    introduce(cast(Rest, JoinRest(two)), options)
    assert json.loads(path.read_bytes()) == {"url": two, "urls": [two, other], "ca": "ca", "token": "t"}


def started(directory: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """``shoal up`` as a process, and its output up to ``ready``."""
    command = [sys.executable, "-c", UP, str(directory), CONTROL, CLUSTER]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if said[-1] == "ready":
            break
    return process, said


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until_gone(*pids: int) -> None:
    eventually_blocking(lambda: all(gone(pid) for pid in pids), timeout_s=15, what=f"the end of {pids}")


def end(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    code = process.wait(10)
    assert process.stdout
    process.stdout.close()
    return code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_commands_then_ready_writes_endpoints_and_a_signal_stops_all(tmp_path: Path, number: int) -> None:
    process, said = started(tmp_path)
    endpoints = json.loads((tmp_path / "endpoints.json").read_bytes())
    assert endpoints["pid"] == process.pid
    assert endpoints["control"]["url"] == "https://127.0.0.1:1234"
    assert [(each["name"], each["region"]) for each in endpoints["clusters"]] == [("eu-1", "eu"), ("us-1", "us")]
    assert any("apply -f examples/hello.yaml" in line for line in said)
    assert not any(line.endswith("shoal examples") for line in said)  # this is a checkout
    assert any(f"--kubeconfig {endpoints['clusters'][0]['kubeconfig']}" in line for line in said)
    assert said[-1] == "ready"
    assert current_context(tmp_path, environ={}).url == "https://127.0.0.1:1234"
    assert end(process, number) == 0
    wait_until_gone(*(each["pid"] for each in (endpoints["control"], *endpoints["clusters"])))
    assert not (tmp_path / "endpoints.json").exists()


def test_the_children_end_with_up_even_when_up_is_killed(tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    endpoints = json.loads((tmp_path / "endpoints.json").read_bytes())
    end(process, signal.SIGKILL)
    wait_until_gone(*(each["pid"] for each in (endpoints["control"], *endpoints["clusters"])))


async def test_a_child_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = "import sys; sys.exit('error: port is 1: taken')"
    with pytest.raises(StartFailed, match=r"control plane did not start \(exit code 1\)[\s\S]*error: port is 1: taken"):
        await run_up(UpOptions(dir=tmp_path), print, deps=deps(control=broken))
    with pytest.raises(StartFailed, match="cluster of region (eu|us) did not start"):
        await run_up(UpOptions(dir=tmp_path), print, deps=deps(cluster=broken))
    assert not (tmp_path / "endpoints.json").exists()


async def test_a_child_that_keeps_dying_ends_up_with_an_error(tmp_path: Path) -> None:
    dying = "print('ready https://x', flush=True); raise SystemExit(3)"
    with pytest.raises(StartFailed, match="cluster of region (eu|us) keeps failing, last with exit code 3"):
        await run_up(UpOptions(dir=tmp_path), lambda _: None, deps=deps(cluster=dying))


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    endpoints = tmp_path / "endpoints.json"
    killed = json.loads(endpoints.read_bytes())["clusters"][0]["pid"]
    os.kill(killed, signal.SIGKILL)
    assert process.stdout
    assert "cluster of region eu exited with code -9; restarting it" in process.stdout.readline()

    def restarted() -> int | None:
        pid: int = json.loads(endpoints.read_bytes())["clusters"][0]["pid"]
        return None if pid == killed else pid

    fresh = eventually_blocking(restarted, timeout_s=10)
    assert end(process, signal.SIGTERM) == 0
    wait_until_gone(fresh)


async def test_a_second_up_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "up.lock"), pytest.raises(ConfigError, match="already in use"):
        await run_up(UpOptions(dir=tmp_path), print)


@pytest.mark.parametrize(
    ("regions", "text"),
    [((), "regions is empty"), (("Eu",), "regions has 'Eu'"), (("a", "a"), "name each region once")],
)
def test_regions_are_checked(tmp_path: Path, regions: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        UpOptions(dir=tmp_path, regions=regions)


async def test_down_stops_a_running_up_and_then_finds_nothing(tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    stopped = await stop_all(tmp_path, clock=RealClock())
    assert stopped == [f"up (process {process.pid})"]
    assert process.wait(5) == 0
    assert process.stdout
    process.stdout.close()
    assert await stop_all(tmp_path, clock=RealClock()) == []


async def test_down_names_the_process_that_did_not_stop(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)

    code = "import sys; from pathlib import Path; from shoal.app.files import DirectoryLock\nwith DirectoryLock(Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
    lock = tmp_path / "cluster.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert holder_of(lock) == holder.pid
        with pytest.raises(ShoalError, match=f"process {holder.pid} did not stop within 20 s"):
            stopping = asyncio.create_task(stop_all(tmp_path, clock=clock))
            await clock.advance(30)
            await stopping
        holder.kill()


HOLDER = """
import sys; from pathlib import Path; from shoal.app.files import DirectoryLock
with DirectoryLock(Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()
"""


async def test_up_waits_for_a_child_of_an_earlier_one_that_was_killed(tmp_path: Path) -> None:
    options, clock = UpOptions(dir=tmp_path, regions=("eu",)), FakeClock()
    lock = options.cluster_dir("eu") / "cluster.lock"
    lock.parent.mkdir(parents=True)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(lock), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdin and holder.stdout
    await holder.stdout.readline()
    waiting = asyncio.create_task(until_ended(options, clock, asyncio.Event()))
    await clock.advance(1)
    assert not waiting.done()
    holder.stdin.close()
    await holder.wait()
    await clock.advance(1)
    async with asyncio.timeout(10):
        await waiting


async def test_up_gives_up_waiting_for_a_child_that_does_not_end(tmp_path: Path) -> None:
    options, clock = UpOptions(dir=tmp_path), FakeClock()
    options.control_dir.mkdir()
    with DirectoryLock(options.control_dir / "control.lock"):
        waiting = asyncio.create_task(until_ended(options, clock, asyncio.Event()))
        await clock.advance(30)
        async with asyncio.timeout(10):
            await waiting


def test_regions_are_remembered_until_others_are_asked_for(tmp_path: Path) -> None:
    assert remembered_regions(tmp_path) == ("eu", "us")
    remember_regions(UpOptions(dir=tmp_path, regions=parse_regions("asia, eu ,")))
    assert remembered_regions(tmp_path) == ("asia", "eu")


def test_the_flags_reach_the_children(tmp_path: Path) -> None:
    options = UpOptions(dir=tmp_path, port=7000)
    assert control_command(options)[1:] == [
        "-m", "shoal", "control", "start", "--dir", str(tmp_path / "control"), "--stop-on-eof", "--page-port", "0",
        "--port", "7000",
    ]  # fmt: skip
    folder = tmp_path / "clusters" / "eu-1"
    assert cluster_command(options, "eu")[1:] == [
        "-m", "shoal", "cluster", "start", "--dir", str(folder), "--stop-on-eof", "--join", str(folder / "join.json"),
        "--edge", str(folder / "edge.json"), "--sharding",
    ]  # fmt: skip
