"""What every runtime of the node agent promises; the text is ``shoal.node.runtime.model``.

A runtime takes part with a harness: how to open it (again, with the same machine below), an image, how to write the few
programs that the suite runs, and how time passes for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from shoal.base.clock import Clock, FakeClock, RealClock
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerSpec,
    ExitReason,
    ImageFailure,
    ImageFault,
    LogOptions,
    LogRecord,
    Mount,
    NoSuchContainer,
    OutputStream,
    Runtime,
    RuntimeEventKind,
    Sandbox,
    SandboxSpec,
    SessionOptions,
    StartFailure,
)
from shoal.testing import podman
from shoal.testing.processes import ProcessMachine
from shoal.testing.sandboxes import SandboxMachine
from shoal.testing.simulated_runtime import Machine, SimulatedConfig, SimulatedRuntime
from shoal.testing.waiting import eventually

_uids = count(1)


class Harness(Protocol):
    """How the suite drives one kind of runtime."""

    clock: Clock
    image: str  # a reference that can be pulled
    missing_image: str  # one that cannot

    def open(self) -> Runtime:
        """A runtime on the harness' machine; opening it again finds what the last one left."""

    async def halt(self) -> None:
        """End everything that still runs."""

    async def pass_time(self, seconds: float) -> None:
        """Let that much time pass for containers; a runtime in real time may return at once."""

    def script(self, text: str) -> tuple[str, ...]:
        """The command that runs a shell script."""

    def server(self, port: int) -> tuple[str, ...]:
        """A program that listens on the port of its pod and sends back what it gets."""


class SimulatedHarness:
    image = "busybox:1"
    missing_image = "missing:1"

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self._machine = Machine()
        self._config = SimulatedConfig(missing=frozenset({self.missing_image}))

    def open(self) -> Runtime:
        return SimulatedRuntime(self._config, clock=self.clock, machine=self._machine)

    async def halt(self) -> None:
        await SimulatedRuntime(self._config, clock=self.clock, machine=self._machine).halt()

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def script(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", text)

    def server(self, port: int) -> tuple[str, ...]:
        return self.script(f"serve {port}")


class ProcessHarness:
    """Real processes; in real time."""

    image = "busybox:1"
    missing_image = "missing:1"

    def __init__(self, folder: Path) -> None:
        self.clock: Clock = RealClock()
        self._machine: SandboxMachine | ProcessMachine = ProcessMachine(folder / "node", registry=folder / "networks")

    def open(self) -> Runtime:
        return self._machine.runtime()

    async def halt(self) -> None:
        await self._machine.halt()

    async def pass_time(self, seconds: float) -> None:
        return

    def script(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", text)

    def server(self, port: int) -> tuple[str, ...]:
        return (sys.executable, "-I", "-c", _ECHO, str(port))


_ECHO = """
import os, socket, sys
server = socket.create_server((os.environ["HOST"], int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
"""


class SandboxHarness(ProcessHarness):
    """Real processes in sandboxes."""

    def __init__(self, folder: Path) -> None:
        self.clock: Clock = RealClock()
        self._machine: SandboxMachine | ProcessMachine = SandboxMachine(folder / "node")

    def script(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", _AS_A_CHILD, text)


class DockerHarness:
    """Containers of podman's Docker-compatible service."""

    image = podman.IMAGE
    missing_image = podman.MISSING_IMAGE

    def __init__(self, folder: Path) -> None:
        if reason := podman.why_not():
            pytest.skip(reason)
        self.clock = RealClock()
        self._cluster = f"test-{next(_uids)}"

    def open(self) -> Runtime:
        return podman.shared_podman().runtime(self._cluster)

    async def halt(self) -> None:
        runtime = podman.shared_podman().runtime(self._cluster)
        await runtime.open()
        await runtime.remove_all()
        await runtime.close()

    async def pass_time(self, seconds: float) -> None:
        return

    def script(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", _AS_A_CHILD, text)

    def server(self, port: int) -> tuple[str, ...]:
        return ("nc", "-ll", "-p", str(port), "-e", "cat")


# A container's first process is not ended by signals that it does not handle, so it passes them on.
_AS_A_CHILD = """
trap 'kill -TERM $child 2>/dev/null' TERM
sh -c "$0" & child=$!
while :; do
  wait $child; code=$?
  kill -0 $child 2>/dev/null || exit $code
done
"""

HARNESSES: dict[str, Callable[[Path], Harness]] = {
    "docker": DockerHarness,
    "process": ProcessHarness,
    "sandbox": SandboxHarness,
    "simulated": SimulatedHarness,
}


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    return HARNESSES[request.param](tmp_path)


class Node:
    """A runtime with one sandbox, and short ways to use it."""

    def __init__(self, harness: Harness, runtime: Runtime, sandbox: Sandbox) -> None:
        self.harness, self.runtime, self.sandbox = harness, runtime, sandbox

    async def create(self, command: tuple[str, ...], *, name: str = "main", attempt: int = 0, **more: Any) -> Container:
        image = await self.runtime.image(self.harness.image) or await self.runtime.pull(self.harness.image)
        spec = ContainerSpec(
            name=name, attempt=attempt, image=image, image_reference=self.harness.image, command=command, **more
        )
        return await self.runtime.create(self.sandbox.id, spec)

    async def run(self, text: str, **more: Any) -> Container:
        made = await self.create(self.harness.script(text), **more)
        return await self.runtime.start(made.id)

    async def until(self, container: Container, phase: ContainerPhase = ContainerPhase.EXITED) -> Container:
        async def check() -> Container | None:
            found = await self.runtime.inspect(container.id)
            return found if found.phase is phase else None

        found: Container = await eventually(check, timeout_s=15)
        return found

    async def log(self, container: Container, **options: Any) -> list[LogRecord]:
        return [record async for batch in self.runtime.logs(container.id, LogOptions(**options)) for record in batch]


@asynccontextmanager
async def a_node(harness: Harness) -> AsyncIterator[Node]:
    runtime = harness.open()
    await runtime.open()
    open_ones = [runtime]
    try:
        uid = f"uid-{next(_uids)}"
        sandbox = await runtime.create_sandbox(SandboxSpec(pod_uid=uid, namespace="default", name="p"))
        node = Node(harness, runtime, sandbox)
        yield node
        open_ones[:] = [node.runtime]  # a test may have opened another one
        await node.runtime.remove_sandbox(sandbox.id)
    finally:
        await open_ones[0].close()
        await harness.halt()


# images


async def test_an_image_is_there_after_it_was_pulled(harness: Harness) -> None:
    async with a_node(harness) as node:
        pulled = await node.runtime.pull(harness.image)
        found = await node.runtime.image(harness.image)
        assert found is not None
        assert found.id == pulled.id
        assert pulled.id in {each.id for each in await node.runtime.images()}


async def test_a_missing_image_is_a_pull_error(harness: Harness) -> None:
    async with a_node(harness) as node:
        assert await node.runtime.image(harness.missing_image) is None
        with pytest.raises(ImageFailure) as caught:
            await node.runtime.pull(harness.missing_image)
        assert caught.value.fault in (ImageFault.PULL, ImageFault.REGISTRY)


async def test_an_invalid_image_name_is_refused(harness: Harness) -> None:
    async with a_node(harness) as node:
        with pytest.raises(ImageFailure) as caught:
            await node.runtime.image("Not An Image!")
        assert caught.value.fault is ImageFault.INVALID_NAME


# sandboxes


async def test_sandboxes_have_addresses_of_their_own(harness: Harness) -> None:
    async with a_node(harness) as node:
        other = await node.runtime.create_sandbox(SandboxSpec(pod_uid="another", namespace="default", name="q"))
        try:
            assert node.sandbox.ready and other.ready
            assert node.sandbox.addresses and other.addresses
            assert set(node.sandbox.addresses).isdisjoint(other.addresses)
        finally:
            await node.runtime.remove_sandbox(other.id)


async def test_creating_the_same_sandbox_again_gives_the_one_there_is(harness: Harness) -> None:
    async with a_node(harness) as node:
        spec = SandboxSpec(pod_uid=node.sandbox.pod_uid, namespace="default", name="p")
        assert (await node.runtime.create_sandbox(spec)).id == node.sandbox.id


async def test_a_stopped_sandbox_is_not_ready_and_nothing_runs_in_it(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        await node.runtime.stop_sandbox(node.sandbox.id)
        found = next(each for each in (await node.runtime.list()).sandboxes if each.id == node.sandbox.id)
        assert not found.ready
        assert (await node.runtime.inspect(container.id)).phase is ContainerPhase.EXITED
        await node.runtime.stop_sandbox(node.sandbox.id)


async def test_a_removed_sandbox_takes_its_containers_along(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        await node.runtime.remove_sandbox(node.sandbox.id)
        inventory = await node.runtime.list()
        assert node.sandbox.id not in {each.id for each in inventory.sandboxes}
        assert container.id not in {each.id for each in inventory.containers}
        await node.runtime.remove_sandbox(node.sandbox.id)


# the life of a container


async def test_a_container_is_made_started_and_exits_with_its_code(harness: Harness) -> None:
    async with a_node(harness) as node:
        made = await node.create(harness.script("exit 3"), hash="h1", labels={"a": "b"})
        assert made.phase is ContainerPhase.CREATED
        started = await node.runtime.start(made.id)
        assert started.started_at is not None
        found = await node.until(made)
        assert (found.exit_code, found.reason, found.hash, dict(found.labels)["a"]) == (3, ExitReason.ERROR, "h1", "b")
        assert found.finished_at is not None and found.started_at is not None
        assert found.finished_at >= found.started_at


async def test_a_container_that_exits_with_zero_has_completed(harness: Harness) -> None:
    async with a_node(harness) as node:
        found = await node.until(await node.run("exit 0"))
        assert (found.exit_code, found.reason) == (0, ExitReason.COMPLETED)


async def test_creating_the_same_container_again_gives_the_one_there_is(harness: Harness) -> None:
    async with a_node(harness) as node:
        first = await node.create(harness.script("sleep 1000"))
        assert (await node.create(harness.script("sleep 1000"))).id == first.id
        assert (await node.create(harness.script("sleep 1000"), attempt=1)).id != first.id


async def test_a_program_that_does_not_exist_is_a_start_error(harness: Harness) -> None:
    async with a_node(harness) as node:
        made = await node.create(("/no/such/program",))
        with pytest.raises(StartFailure) as caught:
            await node.runtime.start(made.id)
        assert "/no/such/program" in str(caught.value)
        found = await node.runtime.inspect(made.id)
        assert (found.phase, found.reason) == (ContainerPhase.EXITED, ExitReason.START_ERROR)
        assert found.exit_code in (127, 128)


async def test_stop_sends_the_signal_and_waits_for_the_exit(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("echo begun; sleep 1000")
        await eventually(lambda: node.log(container))
        found = await node.runtime.stop(container.id, grace_s=30)
        assert (found.phase, found.exit_code) == (ContainerPhase.EXITED, 143)
        again = await node.runtime.stop(container.id, grace_s=30)
        assert again.exit_code == 143


async def test_a_container_that_ignores_the_signal_is_killed_after_its_grace_period(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("trap '' TERM; echo set; sleep 1000")
        await eventually(lambda: node.log(container))
        stopping = asyncio.create_task(node.runtime.stop(container.id, grace_s=1.0), name="stop")
        await harness.pass_time(0.5)
        assert not stopping.done()
        await harness.pass_time(0.5)
        found = await asyncio.wait_for(stopping, 10)
        assert found.exit_code == 137


async def test_stopping_again_with_less_grace_makes_it_shorter(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("trap '' TERM; echo set; sleep 1000")
        await eventually(lambda: node.log(container))
        patient = asyncio.create_task(node.runtime.stop(container.id, grace_s=1000), name="stop")
        await asyncio.sleep(0)
        assert (await node.runtime.stop(container.id, grace_s=0)).exit_code == 137
        assert (await asyncio.wait_for(patient, 10)).exit_code == 137


async def test_a_container_that_never_started_ends_when_it_is_stopped(harness: Harness) -> None:
    async with a_node(harness) as node:
        made = await node.create(harness.script("sleep 1000"))
        found = await node.runtime.stop(made.id, grace_s=10)
        assert (found.phase, found.exit_code) == (ContainerPhase.EXITED, 137)


async def test_a_removed_container_is_gone_and_removing_it_again_succeeds(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        await node.runtime.remove(container.id)
        await node.runtime.remove(container.id)
        with pytest.raises(NoSuchContainer):
            await node.runtime.inspect(container.id)


async def test_containers_get_their_environment_and_mounts(harness: Harness, tmp_path: Path) -> None:
    async with a_node(harness) as node:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "file").write_text("content")
        mount = Mount(host_path=str(tmp_path / "shared"), container_path="/shared")
        container = await node.run(
            "echo $COLOUR; sleep 1000", env=(("COLOUR", "red"), ("COLOUR", "blue")), mounts=(mount,)
        )
        await eventually(lambda: node.log(container))
        assert [record.data for record in await node.log(container)] == [b"blue\n"]
        session = await node.runtime.exec(container.id, ("cat", "/shared/file"), SessionOptions())
        assert b"".join([data async for _, data in session.output()]) == b"content"
        assert await session.wait() == 0


# after a restart


async def test_another_runtime_on_the_same_machine_finds_and_stops_running_containers(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("echo before; sleep 1000", hash="h", labels={"crashes": "2"}, attempt=4)
        await eventually(lambda: node.log(container))
        await node.runtime.close()
        node.runtime = harness.open()
        await node.runtime.open()
        inventory = await node.runtime.list()
        found = next(each for each in inventory.containers if each.id == container.id)
        assert (found.phase, found.attempt, found.hash, dict(found.labels)["crashes"]) == (
            ContainerPhase.RUNNING,
            4,
            "h",
            "2",
        )
        assert found.started_at == pytest.approx(container.started_at, abs=1.0)
        sandbox = next(each for each in inventory.sandboxes if each.id == node.sandbox.id)
        assert sandbox.addresses == node.sandbox.addresses
        assert [record.data for record in await node.log(container)] == [b"before\n"]
        assert (await node.runtime.stop(container.id, grace_s=10)).exit_code == 143


async def test_an_exit_while_no_runtime_is_open_is_known_afterwards(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1; exit 7")
        await node.runtime.close()
        await harness.pass_time(1.5)
        node.runtime = harness.open()
        await node.runtime.open()
        assert (await node.until(container)).exit_code == 7


# events


async def test_starts_and_exits_have_events(harness: Harness) -> None:
    async with a_node(harness) as node:
        events = node.runtime.events()
        seen: list[tuple[RuntimeEventKind, str]] = []

        async def follow() -> None:
            async for event in events:
                if event.pod_uid == node.sandbox.pod_uid and event.container_id:
                    seen.append((event.kind, event.container_id))

        task = asyncio.create_task(follow(), name="events")
        await asyncio.sleep(0)
        container = await node.run("exit 0")
        await eventually(lambda: (RuntimeEventKind.EXITED, container.id) in seen, timeout_s=15)
        assert seen[0] == (RuntimeEventKind.STARTED, container.id)
        await node.runtime.close()
        await asyncio.wait_for(task, 10)
        await node.runtime.open()


# logs


async def test_logs_have_both_streams_in_order_with_times(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.until(await node.run("echo one; echo two >&2; echo three"))
        records = await node.log(container)
        assert sorted(record.data for record in records) == [b"one\n", b"three\n", b"two\n"]
        assert [record.data for record in records if record.stream is OutputStream.STDERR] == [b"two\n"]
        assert [r.data for r in records if r.stream is OutputStream.STDOUT] == [b"one\n", b"three\n"]
        assert all(record.at_ns > 0 for record in records)
        only = await node.log(container, streams=frozenset({OutputStream.STDERR}))
        assert [record.data for record in only] == [b"two\n"]


async def test_the_tail_of_a_log(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.until(await node.run("; ".join(f"echo {n}" for n in range(20))))
        assert [record.data for record in await node.log(container, tail=3)] == [b"17\n", b"18\n", b"19\n"]
        assert await node.log(container, tail=0) == []
        assert len(await node.log(container, tail=100)) == 20


async def test_a_log_since_an_instant(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("echo early; sleep 2; echo late")
        await eventually(lambda: node.log(container))
        await harness.pass_time(2)
        await node.until(container)
        records = await node.log(container)
        assert [record.data for record in await node.log(container, since_ns=records[1].at_ns)] == [b"late\n"]


async def test_a_followed_log_goes_on_until_the_container_ends(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("echo early; sleep 1; echo late")
        lines: list[bytes] = []

        async def follow() -> None:
            async for batch in node.runtime.logs(container.id, LogOptions(follow=True)):
                lines.extend(record.data for record in batch)

        task = asyncio.create_task(follow(), name="follow")
        await eventually(lambda: lines == [b"early\n"])
        await harness.pass_time(1)
        await asyncio.wait_for(task, 15)
        assert lines == [b"early\n", b"late\n"]


async def test_logs_of_a_missing_container_raise(harness: Harness) -> None:
    async with a_node(harness) as node:
        with pytest.raises(NoSuchContainer):
            async for _ in node.runtime.logs("nothing", LogOptions()):
                pass


# sessions


async def finished(session: Any) -> tuple[bytes, bytes, int]:
    out, err = b"", b""
    async for stream, data in session.output():
        if stream is OutputStream.STDOUT:
            out += data
        else:
            err += data
    return out, err, await session.wait()


async def test_exec_gives_output_errors_and_the_exit_code(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        session = await node.runtime.exec(
            container.id, harness.script("echo out; echo err >&2; exit 5"), SessionOptions()
        )
        assert await finished(session) == (b"out\n", b"err\n", 5)


async def test_exec_passes_input_on_and_ends_with_it(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        session = await node.runtime.exec(container.id, ("cat",), SessionOptions(stdin=True))
        await session.write(b"hello ")
        await session.write(b"there")
        await session.close_input()
        assert await finished(session) == (b"hello there", b"", 0)


async def test_a_session_that_is_given_up_ends(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        session = await node.runtime.exec(container.id, harness.script("sleep 1000"), SessionOptions())
        await session.close()
        await session.close()
        assert (await node.runtime.inspect(container.id)).phase is ContainerPhase.RUNNING


async def test_exec_needs_a_program_and_a_running_container(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.run("sleep 1000")
        with pytest.raises(StartFailure):
            await node.runtime.exec(container.id, ("/no/such/program",), SessionOptions())
        await node.runtime.stop(container.id, grace_s=0)
        with pytest.raises(NoSuchContainer):
            await node.runtime.exec(container.id, ("cat",), SessionOptions())


async def test_attach_shows_output_from_now_on_and_passes_input(harness: Harness) -> None:
    async with a_node(harness) as node:
        container = await node.create(("cat",), stdin=True, stdin_once=True)
        await node.runtime.start(container.id)
        session = await node.runtime.attach(container.id, SessionOptions(stdin=True))
        await session.write(b"hello\n")
        output = session.output()
        assert await asyncio.wait_for(anext(output), 10) == (OutputStream.STDOUT, b"hello\n")
        await session.close_input()
        assert await asyncio.wait_for(session.wait(), 10) == 0
        await session.close()


# ports


async def test_a_port_of_a_pod_can_be_reached(harness: Harness) -> None:
    async with a_node(harness) as node:
        made = await node.create(harness.server(18080))
        await node.runtime.start(made.id)

        async def connected() -> Any:
            try:
                return await node.runtime.connect(node.sandbox.id, 18080)
            except ConnectionError:
                return None

        connection = await eventually(connected, timeout_s=15)
        await connection.write(b"ping")
        assert await asyncio.wait_for(connection.read(), 10) == b"ping"
        await connection.close()


async def test_a_port_without_a_listener_refuses_connections(harness: Harness) -> None:
    async with a_node(harness) as node:
        await node.run("sleep 1000")
        with pytest.raises(ConnectionError):
            await node.runtime.connect(node.sandbox.id, 18081)


# statistics


async def test_statistics_cover_only_running_containers(harness: Harness) -> None:
    async with a_node(harness) as node:
        running, ended = await node.run("sleep 1000"), await node.run("exit 0", name="other")
        await node.until(ended)
        found = {each.container_id: each for each in await node.runtime.stats()}
        assert running.id in found and ended.id not in found
        assert found[running.id].memory_working_set_bytes > 0
        before = found[running.id].cpu_total_ns
        await harness.pass_time(5)
        after = next(each for each in await node.runtime.stats() if each.container_id == running.id)
        assert after.cpu_total_ns >= before


async def test_the_runtime_has_a_name_and_a_version(harness: Harness) -> None:
    async with a_node(harness) as node:
        info = await node.runtime.info()
        assert info.name and info.version
