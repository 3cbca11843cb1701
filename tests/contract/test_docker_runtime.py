"""The docker runtime beyond the contract of all runtimes, with podman's Docker-compatible service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shoal.node.runtime.docker.runtime import DockerRuntime
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    ImageFailure,
    ImageFault,
    LogOptions,
    Mount,
    OutputStream,
    PortMapping,
    RegistryCredentials,
    RuntimeEventKind,
    RuntimeFailure,
    RuntimeSession,
    Sandbox,
    SandboxSpec,
    Security,
    SessionOptions,
)
from shoal.testing import podman
from shoal.testing.registry import USER
from shoal.testing.waiting import eventually

_numbers = count(1)


@pytest.fixture(autouse=True)
def engine() -> None:
    if reason := podman.why_not():
        pytest.skip(reason)


class Node:
    """A runtime with one pod."""

    def __init__(self, runtime: DockerRuntime, cluster: str, sandbox: Sandbox) -> None:
        self.runtime, self.cluster, self.sandbox = runtime, cluster, sandbox

    async def run(self, *command: str, name: str = "main", sandbox: str = "", **more: Any) -> Container:
        image = await self.runtime.image(podman.IMAGE) or await self.runtime.pull(podman.IMAGE)
        spec = ContainerSpec(
            name=name, attempt=0, image=image, image_reference=podman.IMAGE, command=command, **more
        )  # fmt: skip
        made = await self.runtime.create(sandbox or self.sandbox.id, spec)
        return await self.runtime.start(made.id)

    async def said(self, container: Container, *command: str, **options: Any) -> str:
        """The output of a command in a container."""
        session = await self.runtime.exec(container.id, command, SessionOptions(**options))
        try:
            return b"".join([data async for _, data in session.output()]).decode()
        finally:
            await session.close()

    async def log(self, container: Container, **options: Any) -> list[bytes]:
        return [
            record.data async for batch in self.runtime.logs(container.id, LogOptions(**options)) for record in batch
        ]

    async def ended(self, container: Container) -> Container:
        async def check() -> Container | None:
            found = await self.runtime.inspect(container.id)
            return found if found.phase is ContainerPhase.EXITED else None

        found: Container = await eventually(check, timeout_s=15)
        return found


@asynccontextmanager
async def a_node(**pod: Any) -> AsyncIterator[Node]:
    cluster = f"docker-{next(_numbers)}"
    runtime = podman.shared_podman().runtime(cluster)
    await runtime.open()
    try:
        spec = SandboxSpec(pod_uid=f"uid-{cluster}", namespace="default", name="p", **pod)
        node = Node(runtime, cluster, await runtime.create_sandbox(spec))
        yield node
        await node.runtime.remove_all()
    finally:
        await runtime.close()


# images


async def test_an_image_behind_a_password_is_pulled_with_the_credentials_of_its_registry() -> None:
    async with a_node() as node:
        wrong = RegistryCredentials(server="elsewhere.example", username=USER[0], password=USER[1])
        with pytest.raises(ImageFailure) as caught:
            await node.runtime.pull(podman.PRIVATE_IMAGE, credentials=(wrong,))
        assert caught.value.fault is ImageFault.PULL
        right = RegistryCredentials(server=podman.REGISTRY, username=USER[0], password=USER[1])
        assert (await node.runtime.pull(podman.PRIVATE_IMAGE, credentials=(wrong, right))).id


async def test_concurrent_pulls_share_one_and_cancelling_a_caller_does_not_end_it() -> None:
    async with a_node() as node:
        impatient = asyncio.create_task(node.runtime.pull(podman.IMAGE), name="impatient")
        patient = asyncio.create_task(node.runtime.pull(podman.IMAGE), name="patient")
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).names


async def test_an_unreachable_registry_is_a_different_fault_than_a_missing_image() -> None:
    async with a_node() as node:
        with pytest.raises(ImageFailure) as caught:
            await node.runtime.pull("127.0.0.1:1/any:1")
        assert caught.value.fault is ImageFault.REGISTRY


# pods


def _loopback_server() -> tuple[str, ...]:
    return ("httpd", "-f", "-p", "127.0.0.1:9000", "-h", "/etc")


async def test_containers_of_a_pod_share_its_name_and_its_loopback() -> None:
    async with a_node(hostname="web-0") as node:
        await node.run(*_loopback_server())
        other = await node.run("sleep", "1000", name="other")
        assert (await node.said(other, "hostname")).strip() == "web-0"

        async def answered() -> bool:
            return "404 Not Found" in await node.said(other, "wget", "-O-", "http://127.0.0.1:9000/no")

        await eventually(answered, timeout_s=15)


async def test_a_port_on_the_pods_own_loopback_can_be_forwarded() -> None:
    async with a_node() as node:
        await node.run(*_loopback_server())

        async def answered() -> bytes:
            try:
                connection = await node.runtime.connect(node.sandbox.id, 9000)
            except ConnectionError:
                return b""
            await connection.write(b"GET /no HTTP/1.0\r\n\r\n")
            found = await asyncio.wait_for(connection.read(), 10)
            await connection.close()
            return found

        assert (await eventually(answered, timeout_s=15)).startswith(b"HTTP/1")


async def test_host_ports_and_sysctls_are_taken_by_the_engine() -> None:
    ports = (PortMapping(container_port=80, host_port=18999),)
    async with a_node(ports=ports, sysctls={"net.ipv4.ip_unprivileged_port_start": "79"}) as node:
        container = await node.run("sleep", "1000")
        found = await node.said(container, "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start")
        assert found.strip() == "79"
        with pytest.raises(CreateFailure):
            again = SandboxSpec(pod_uid="other", namespace="default", name="q", ports=ports)
            await node.runtime.create_sandbox(again)
        assert len((await node.runtime.list()).sandboxes) == 1


async def test_a_sandbox_killed_from_outside_has_an_event_and_can_be_created_again() -> None:
    async with a_node() as node:
        seen = []

        async def follow() -> None:
            async for event in events:
                seen.append(event.kind)

        events = node.runtime.events()
        task = asyncio.create_task(follow(), name="events")
        other = podman.shared_podman().runtime(node.cluster)
        await other.open()
        await other.stop_sandbox(node.sandbox.id)
        await other.close()
        await eventually(lambda: RuntimeEventKind.SANDBOX in seen, timeout_s=15)
        spec = SandboxSpec(pod_uid=node.sandbox.pod_uid, namespace="default", name="p")
        made = await node.runtime.create_sandbox(spec)
        assert made.ready and made.id != node.sandbox.id
        await node.runtime.close()
        await asyncio.wait_for(task, 10)
        await node.runtime.open()


# containers


async def test_a_container_that_takes_too_much_memory_is_killed() -> None:
    async with a_node() as node:
        limits = ContainerResources(memory_limit_bytes=16 << 20, cpu_request_milli=100, cpu_limit_milli=500)
        hungry = await node.run("sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done", resources=limits)
        assert (await node.ended(hungry)).exit_code == 137


async def test_users_groups_rights_and_the_root_are_as_the_pod_says() -> None:
    async with a_node() as node:
        security = Security(
            user=1000, group=2000, supplemental_groups=(3000,), fs_group=4000, read_only_root=True,
            allow_privilege_escalation=False, dropped_capabilities=("ALL",), added_capabilities=("CAP_NET_RAW",),
        )  # fmt: skip
        container = await node.run("sleep", "1000", security=security)
        assert (await node.said(container, "id")).strip() == "uid=1000(1000) gid=2000(2000) groups=3000,4000"
        status = await node.said(container, "cat", "/proc/1/status")
        assert "NoNewPrivs:\t1" in status
        assert "CapBnd:\t0000000000002000" in status
        assert "Read-only file system" in await node.said(container, "touch", "/new")


async def test_an_image_that_runs_as_root_is_refused_where_that_is_not_allowed() -> None:
    async with a_node() as node:
        with pytest.raises(CreateFailure, match="runAsNonRoot"):
            await node.run("sleep", "1000", security=Security(run_as_non_root=True))
        assert (await node.runtime.list()).containers == ()


async def test_a_subpath_that_became_a_link_is_mounted_only_if_it_stays_in_its_volume(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume / "inner", outside):
        folder.mkdir(parents=True)
        (folder / "name").write_text(folder.name)
    part = volume / "part"
    mount = Mount(host_path=str(part), container_path="/data", read_only=True, within=str(volume))
    async with a_node() as node:
        part.symlink_to(outside)
        with pytest.raises(CreateFailure, match="opening .*/volume/part"):
            await node.run("sleep", "1000", mounts=(mount,))
        part.unlink()
        part.symlink_to("inner")
        container = await node.run("sleep", "1000", mounts=(mount,))
        assert await node.said(container, "cat", "/data/name") == "inner"


async def test_an_ephemeral_container_sees_the_processes_of_its_target() -> None:
    async with a_node() as node:
        await node.run("sleep", "12345")
        debugger = await node.run("sleep", "1000", name="debugger", target="main")
        assert "sleep 12345" in await node.said(debugger, "ps")
        with pytest.raises(CreateFailure, match="nobody"):
            await node.run("sleep", "1000", name="other", target="nobody")


# sessions


async def test_a_terminal_has_the_size_that_it_is_given() -> None:
    async with a_node() as node:
        container = await node.run("sleep", "1000")
        command = ("sh", "-c", "read line; stty size; exit 4")
        session = await node.runtime.exec(container.id, command, SessionOptions(stdin=True, tty=True))
        await session.resize(101, 37)
        await session.write(b"go\n")
        output = b"".join([data async for _, data in session.output()])
        assert b"37 101" in output
        assert await session.wait() == 4


async def test_the_command_of_a_session_that_is_given_up_is_killed_with_its_children() -> None:
    async with a_node() as node:
        container = await node.run("sleep", "1000")
        command = ("sh", "-c", "sleep 54321 & echo up; sleep 54322; echo")
        session = await node.runtime.exec(container.id, command, SessionOptions())
        assert await anext(session.output()) == (OutputStream.STDOUT, b"up\n")
        await session.close()

        async def gone() -> bool:
            return "5432" not in await node.said(container, "ps")

        await eventually(gone, timeout_s=15)


async def test_a_command_ends_with_its_container() -> None:
    async with a_node() as node:
        container = await node.run("sleep", "1000")
        session = await node.runtime.exec(container.id, ("sleep", "1000"), SessionOptions())
        await node.runtime.stop(container.id, grace_s=0)
        assert [each async for each in session.output()] == []
        assert await asyncio.wait_for(session.wait(), 10) == 137
        await session.close()


async def _first(session: RuntimeSession) -> bytes:
    return (await asyncio.wait_for(anext(session.output()), 10))[1]


async def test_the_input_of_a_terminal_outlives_an_attach() -> None:
    async with a_node() as node:
        container = await node.run("sh", "-c", "stty -echo; echo up; cat", stdin=True, tty=True)
        await eventually(lambda: node.log(container), timeout_s=15)
        for text in (b"one\n", b"two\n"):
            session = await node.runtime.attach(container.id, SessionOptions(stdin=True))
            await session.write(text)
            assert (await _first(session)).rstrip() == text.rstrip()
            await session.close_input()
            await session.write(b"ignored\n")
            await session.close()


async def test_several_attached_see_the_same_and_a_terminal_is_one_stream() -> None:
    async with a_node() as node:
        container = await node.run("sh", "-c", "read line; echo out; echo err >&2; sleep 1000", stdin=True, tty=True)
        both = [await node.runtime.attach(container.id, SessionOptions(stdin=True)) for _ in range(2)]
        await both[0].write(b"go\n")
        for session in both:
            found = b""
            async for stream, data in session.output():
                assert stream is OutputStream.STDOUT
                found += data
                if b"err" in found:
                    break
            assert b"out\r\nerr" in found
            await session.close()


# logs


async def test_the_log_of_a_terminal_has_its_lines() -> None:
    async with a_node() as node:
        container = await node.ended(await node.run("sh", "-c", "echo one; echo; echo three", tty=True))
        assert [line.rstrip() for line in await node.log(container)] == [b"one", b"", b"three"]


async def test_lines_come_whole_whatever_is_in_them() -> None:
    async with a_node() as node:
        script = "printf ' lead\\n'; echo; echo 'trail '; printf '\\342\\202\\254\\n'; head -c 40000 /dev/zero | tr '\\0' x; echo"
        container = await node.ended(await node.run("sh", "-c", script))
        joined = b"".join(await node.log(container))
        assert joined == b" lead\n\ntrail \n\xe2\x82\xac\n" + b"x" * 40000 + b"\n"


async def test_the_tail_of_one_stream_counts_its_own_lines_also_when_it_is_followed() -> None:
    async with a_node() as node:
        script = "for n in 1 2 3; do echo out $n; echo err $n >&2; done; while read line; do echo err $line >&2; done"
        container = await node.run("sh", "-c", script, stdin=True)
        await eventually(lambda: _has(node, container, 6), timeout_s=15)
        options: dict[str, Any] = {"tail": 1, "streams": frozenset({OutputStream.STDERR})}
        assert await node.log(container, **options) == [b"err 3\n"]
        old: list[bytes] = []
        new: list[bytes] = []

        async def follow(into: list[bytes], **options: Any) -> None:
            async for batch in node.runtime.logs(container.id, LogOptions(follow=True, **options)):
                into.extend(record.data for record in batch)

        following = asyncio.create_task(follow(old, **options), name="follow")
        from_now_on = asyncio.create_task(follow(new, tail=0), name="from now on")
        await eventually(lambda: _true(old), timeout_s=15)  # before another line is written, so that 3 is the last
        session = await node.runtime.attach(container.id, SessionOptions(stdin=True))

        async def seen() -> bool:  # nothing shows when it has begun but what is written then
            await session.write(b"new\n")
            return bool(new)

        await eventually(seen, timeout_s=15)
        await node.runtime.stop(container.id, grace_s=0)
        await asyncio.wait_for(following, 20)
        assert old[:2] == [b"err 3\n", b"err new\n"]
        await asyncio.wait_for(from_now_on, 20)
        assert set(new) == {b"err new\n"}
        await session.close()


async def _true(value: object) -> bool:
    return bool(value)


async def _has(node: Node, container: Container, lines: int) -> bool:
    return len(await node.log(container)) >= lines


async def test_a_followed_log_and_the_events_end_when_the_runtime_is_closed() -> None:
    async with a_node() as node:
        container = await node.run("sh", "-c", "echo here; sleep 1000")
        lines: list[bytes] = []

        async def follow() -> None:
            async for batch in node.runtime.logs(container.id, LogOptions(follow=True)):
                lines.extend(record.data for record in batch)

        task = asyncio.create_task(follow(), name="follow")
        await eventually(lambda: lines == [b"here\n"], timeout_s=15)
        await node.runtime.close()
        await asyncio.wait_for(task, 10)
        await node.runtime.open()
        assert (await node.runtime.inspect(container.id)).phase is ContainerPhase.RUNNING


# faults


async def test_containers_outlive_the_service_of_the_engine_and_exits_meanwhile_have_events() -> None:
    async with a_node() as node:
        engine = podman.shared_podman()
        lasting = await node.run("sleep", "1000")
        short = await node.run("sleep", "3", name="short")
        seen: list[tuple[RuntimeEventKind, str]] = []

        async def follow() -> None:
            async for event in events:
                seen.append((event.kind, event.container_id))

        events = node.runtime.events()
        task = asyncio.create_task(follow(), name="events")
        await asyncio.to_thread(engine.stop)
        with pytest.raises(RuntimeFailure, match=engine.socket):
            await node.runtime.info()
        await asyncio.to_thread(engine.command, "wait", short.id)  # it exits while the service is stopped
        await asyncio.to_thread(engine.start)
        await eventually(lambda: (RuntimeEventKind.EXITED, short.id) in seen, timeout_s=30)
        assert (RuntimeEventKind.EXITED, lasting.id) not in seen
        assert (await node.runtime.inspect(lasting.id)).phase is ContainerPhase.RUNNING
        assert (await node.runtime.info()).version
        await node.runtime.close()
        await asyncio.wait_for(task, 10)
        await node.runtime.open()


async def test_a_node_lists_and_removes_only_its_own_containers() -> None:
    async with a_node() as node, a_node() as other:
        container = await node.run("sleep", "1000")
        assert container.id not in {each.id for each in (await other.runtime.list()).containers}
        await other.runtime.remove_all()
        await other.runtime.remove(container.id)
        assert (await node.runtime.inspect(container.id)).phase is ContainerPhase.RUNNING
        await node.runtime.remove_all()
        assert await node.runtime.list() == type(await node.runtime.list())((), ())


async def test_containers_without_a_sandbox_are_removed_when_the_runtime_opens() -> None:
    async with a_node() as node:
        container = await node.run("sleep", "1000")
        await node.runtime.close()
        podman.shared_podman().command("rm", "--force", "--time=0", "--depend", node.sandbox.id)
        await node.runtime.open()
        inventory = await node.runtime.list()
        assert container.id not in {each.id for each in inventory.containers}


async def test_a_missing_engine_is_reported_with_its_socket_and_the_fix(tmp_path: Any) -> None:
    runtime = podman.shared_podman().runtime("c", socket=str(tmp_path / "no.sock"))
    with pytest.raises(RuntimeFailure, match=r"no\.sock.*podman system service"):
        await runtime.open()
