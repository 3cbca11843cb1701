"""Controllers, scheduler and nodes as processes of their own: whatever is killed or paused, the cluster converges, and
two of a kind never act at once."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from component_processes import LEASES, NODES, Cluster, Part, cluster, eventually_despite_outages
from redis.asyncio import Redis

from shoal.app.cluster import identity_of
from shoal.app.credentials import Access, StaticToken, create_token, read_access, render_kubeconfig
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.base.tasks import cancel_all
from shoal.client import TransportError, connect, load
from shoal.errors import AlreadyExists, ApiError
from shoal.kube.objects import Obj
from shoal.testing.databases import redis_server
from shoal.testing.proxy import TcpProxy
from shoal.testing.workloads import deployment, replica_set

LEASE_S = 15.0
SHORT_TERMS = ("--election-lease", "10", "--election-renew-deadline", "8", "--election-retry", "1")
QUIET_S = 1.5
CONTAINER_S = 120  # a test that fails leaves none for longer
COMPLETIONS = 6
ALL = "apiserver,scheduler,controllers,nodes"
ACCOUNTS = "system:serviceaccount:kube-system"
REPLICA_SETS, SCHEDULER = f"{ACCOUNTS}:replicaset-controller", "system:kube-scheduler"


def job(name: str) -> Obj:
    template = {"spec": {"containers": [{"name": "main", "image": "app:1"}], "restartPolicy": "Never"}}
    spec = {"completions": COMPLETIONS, "parallelism": COMPLETIONS // 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def start_rollout(up: Cluster, name: str, image: str) -> None:
    """A new template; the server may be away when it is asked."""
    container = {"name": "main", "image": image}

    async def ask() -> bool:
        await up.patch("deployments", name, {"spec": {"template": {"spec": {"containers": [container]}}}})
        return True

    await eventually_despite_outages(ask)


async def completed(up: Cluster, name: str) -> None:
    """The Job has come to its end, with one pod for each completion and each counted once."""

    async def check() -> bool:
        status = (await up.get("jobs", name, "batch")).get("status") or {}
        assert status.get("succeeded") == COMPLETIONS, status
        assert status.get("completionTime") and not status.get("failed"), status
        return True

    await eventually_despite_outages(check)
    pods = await up.pods(f"job-name={name}")
    assert len(pods) == COMPLETIONS
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert not any(pod["metadata"].get("finalizers") for pod in pods)


async def keep_scaling(up: Cluster, name: str) -> None:
    """Change the number of replicas all the time, also while components are down."""
    for replicas in cycle((1, 5, 2, 6, 3)):
        with suppress(ApiError, TransportError):
            await up.patch("deployments", name, {"spec": {"replicas": replicas}})
        await asyncio.sleep(0.1)


@pytest.mark.chaos
@pytest.mark.timeout(240)
async def test_whatever_is_killed_under_load_the_cluster_converges(tmp_path: Path) -> None:
    chance = Random(4)
    async with cluster(tmp_path) as up:
        parts = {"apiserver": up.server, **await up.add_all()}
        victims = [*chance.sample(sorted(parts), k=len(parts)), *chance.sample(sorted(parts), k=len(parts))]
        await up.create(deployment("web", 6))
        await up.create(deployment("busy", 1))
        await up.rolled_out("web")
        load = asyncio.create_task(keep_scaling(up, "busy"))
        for number, victim in enumerate(victims):
            await start_rollout(up, "web", f"app:{number}")
            await create_surely(up, job(f"sum-{number}"))
            await asyncio.sleep(chance.random() * 0.8)  # any moment
            await parts[victim].kill()
            await asyncio.sleep(chance.random() * 0.3)
            await parts[victim].start()
        await cancel_all(load)
        await start_rollout(up, "busy", "app:last")
        for name in ("web", "busy"):
            await up.rolled_out(name)
        for number in range(len(victims)):
            await completed(up, f"sum-{number}")
        images = {pod["spec"]["containers"][0]["image"] for pod in await up.pods("app=web")}
        assert images == {f"app:{len(victims) - 1}"}
        assert all(times == 1 for times in (await up.bindings()).values())


async def create_surely(up: Cluster, obj: Obj) -> None:
    """Create it, also when the server has just come back; an attempt whose answer was lost may have done so."""

    async def ask() -> bool:
        with suppress(AlreadyExists):
            await up.create(obj)
        return True

    await eventually_despite_outages(ask)


@pytest.mark.timeout(120)
async def test_containers_go_on_whatever_is_killed(tmp_path: Path) -> None:
    """The processes are the same before, during and after, and the components find them again."""

    async with cluster(tmp_path) as up:
        shared = ("--credentials", str(up.server.folder))
        parts = {
            "nodes": up.part("nodes", "nodes", "--nodes", "1", *shared),
            "others": up.part("others", "scheduler,controllers"),
            "apiserver": up.server,
        }
        await asyncio.gather(parts["nodes"].start(), parts["others"].start())
        own = f"{tmp_path}/$HOSTNAME"  # two dollars are one to the cluster
        script = f"echo $$$$ > {own}.new; mv {own}.new {own}.pid; exec sleep {CONTAINER_S}"
        container = {"name": "main", "image": "app:1", "command": ["sh", "-c", script]}
        pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        await up.create(deployment("web", 2, template=pod))
        try:
            await up.rolled_out("web")
            pids = await eventually_despite_outages(lambda: written_pids(tmp_path, 2))
            before = containers_of(await up.pods("app=web"))
            assert len(before) == 2
            for part in parts.values():
                await part.kill()
            assert all(is_running(pid) for pid in pids)
            await up.server.start()
            await asyncio.gather(parts["nodes"].start(), parts["others"].start())
            await up.patch("deployments", "web", {"spec": {"replicas": 3}})
            await up.rolled_out("web")
            after = containers_of(await up.pods("app=web"))
            assert len(after) == 3 and before < after
            assert all(is_running(pid) for pid in pids)
        finally:
            await up.patch("deployments", "web", {"spec": {"replicas": 0}})
            await eventually_despite_outages(lambda: all_run(up, "app=web", 0))
        assert not any(is_running(pid) for pid in pids)


def containers_of(pods: list[Obj]) -> set[tuple[str, str, int]]:
    """Pod, container and how often it was restarted."""
    return {
        (pod["metadata"]["name"], status["containerID"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    }


async def written_pids(folder: Path, count: int) -> list[int]:
    found = [int(path.read_text()) for path in sorted(folder.glob("*.pid"))]
    return found if len(found) == count else []


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.timeout(180)
async def test_everything_in_one_process_goes_on_at_once_after_a_kill(tmp_path: Path) -> None:
    """Long before the leases it held before the kill expire. A busy machine has three tries."""

    async with cluster(tmp_path, ALL, *NODES) as up:
        await up.create(deployment("web", 3))
        await up.rolled_out("web")
        for replicas in (5, 2, 4):
            await up.server.kill()
            killed_s = time.monotonic()
            await up.server.start()
            await up.patch("deployments", "web", {"spec": {"replicas": replicas}})
            await up.rolled_out("web")
            assert {await up.holder(components) for components in LEASES} == {up.server.identity}
            if time.monotonic() - killed_s < LEASE_S - 5:
                return
        pytest.fail("it waited for its own leases to run out")


def test_a_copied_directory_is_another_candidate(tmp_path: Path) -> None:
    first, ids = tmp_path / "first", Ids()
    first.mkdir()
    identity = identity_of(first, ids)
    assert identity_of(first, ids) == identity
    shutil.copytree(first, tmp_path / "copy")
    assert identity_of(tmp_path / "copy", ids) != identity
    shutil.rmtree(first)
    shutil.copytree(tmp_path / "copy", first)  # where the first was, and what it said
    assert identity_of(first, ids) != identity_of(tmp_path / "copy", ids)


# -- a paused leader ---------------------------------------------------------------------------------------------------


# Work whose writes nothing but the fence refuses: they neither name a revision nor find what they make in their way.


async def more_replicas(up: Cluster) -> None:
    await up.patch("replicasets", "set", {"spec": {"replicas": 6}})


async def has_replicas(up: Cluster) -> bool:
    return len(await up.pods("app=set")) == 6


async def pod_that_fits_nowhere(up: Cluster) -> None:
    spec = {"containers": [{"name": "main", "image": "app:1"}], "nodeSelector": {"is": "nowhere"}}
    about = {"name": "late", "namespace": "default"}
    await up.create({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})


async def is_refused(up: Cluster) -> bool:
    conditions = (await up.get("pods", "late"))["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


@pytest.mark.chaos
@pytest.mark.timeout(180)
async def test_late_writes_of_a_paused_leader_are_refused_and_it_stands_down(tmp_path: Path) -> None:
    await pause_a_leader(tmp_path)


@pytest.mark.timeout(180)
async def test_late_writes_of_a_paused_leader_are_refused_also_where_redis_elects(tmp_path: Path) -> None:
    with redis_server() as redis:
        await pause_a_leader(tmp_path, "--lock", redis.url, *SHORT_TERMS)
        async with Redis.from_url(redis.url) as client:
            assert {key.rpartition(b"/")[2] async for key in client.scan_iter("shoal:lock:*:number")} == {
                f"{lease}}}:number".encode() for lease in LEASES.values()
            }


async def pause_a_leader(folder: Path, *flags: str) -> None:
    """A proxy holds the leader's writes back while it is stopped; they arrive when another candidate leads."""

    async with cluster(folder) as up, TcpProxy(up.port) as proxy:
        both = "controllers,scheduler"
        first = up.part("first", both, "--server", f"https://127.0.0.1:{proxy.port}", *flags)
        await asyncio.gather(first.start(), up.part("nodes", "nodes", *NODES).start())
        await leads(up, first)
        second = await up.add("second", both, *flags)
        await up.create(deployment("web", 2))
        await up.create(replica_set("set", 2))
        await up.rolled_out("web")
        await eventually_despite_outages(lambda: all_run(up, "app=set", 2))
        version = await up.version()

        proxy.deafen()
        await more_replicas(up)
        await pod_that_fits_nowhere(up)
        await until_all_is_held(proxy)
        assert not await has_replicas(up) and not await is_refused(up)
        first.send(signal.SIGSTOP)
        await leads(up, second)
        await eventually_despite_outages(lambda: has_replicas(up))
        await eventually_despite_outages(lambda: is_refused(up))
        assert await up.fenced_off() == set()

        proxy.heal()
        await eventually_despite_outages(lambda: refused(up, REPLICA_SETS, SCHEDULER))
        first.send(signal.SIGCONT)
        await up.rolled_out("web")
        await eventually_despite_outages(lambda: all_run(up, "app=set", 6))
        assert {await up.holder(components) for components in LEASES} == {second.identity}

        await second.stop()  # the one that was paused is a candidate again, not a leader gone mad
        await leads(up, first)
        await up.patch("deployments", "web", {"spec": {"replicas": 3}})
        await up.rolled_out("web")
        assert len(await up.made_since(version, "app=set")) == 4
        assert all(times == 1 for times in (await up.bindings()).values())


async def until_all_is_held(proxy: TcpProxy) -> None:
    """The leader has sent what it wants to write, beside renewals of its leases, and comes to nothing more."""
    since_s, seen = time.monotonic(), 0

    async def check() -> bool:
        nonlocal since_s, seen
        if proxy.held != seen:
            since_s, seen = time.monotonic(), proxy.held
        return seen >= 2 + len(LEASES) and time.monotonic() - since_s > QUIET_S

    await eventually_despite_outages(check)


async def all_run(up: Cluster, selector: str, count: int) -> bool:
    pods = await up.pods(selector)
    return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)


async def leads(up: Cluster, part: Part) -> None:
    """It holds every lease."""

    async def check() -> bool:
        return {await up.holder(components) for components in LEASES} == {part.identity}

    await eventually_despite_outages(check, timeout_s=3 * LEASE_S)


async def refused(up: Cluster, *users: str) -> bool:
    return set(users) <= await up.fenced_off()


# -- as whom they act --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_components_act_under_their_own_names_also_over_the_network(tmp_path: Path) -> None:
    async with cluster(tmp_path) as up:
        await up.add_all()
        await up.create(deployment("web", 2))
        await up.rolled_out("web")
        entries = await up.audit()
        acted = {
            (entry["impersonatedUser"]["username"], entry.get("objectRef", {}).get("resource"))
            for entry in entries
            if "impersonatedUser" in entry and entry["responseStatus"]["code"] in (200, 201)
        }
        wanted = {
            (f"{ACCOUNTS}:deployment-controller", "replicasets"),
            (REPLICA_SETS, "pods"),
            (SCHEDULER, "pods"),
            ("shoal:simulated-nodes", "pods"),
        }
        assert wanted <= acted
        assert [entry for entry in entries if entry["responseStatus"]["code"] == 403] == []


@pytest.mark.timeout(120)
async def test_components_are_the_kubeconfigs_user_where_that_may_not_act_as_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as up:
        plain = ("--kubeconfig", str(await plain_user(up)))
        parts = [up.part(name, name, *plain) for name in ("controllers", "scheduler")]
        parts.append(up.part("nodes", "nodes", *NODES))
        await asyncio.gather(*(part.start() for part in parts))
        await up.create(deployment("web", 2))
        await up.rolled_out("web")
        entries = [entry for entry in await up.audit() if entry["user"].get("username") == "plain"]
        assert {"replicasets", "pods"} <= {entry.get("objectRef", {}).get("resource") for entry in entries}
        acted = [entry for entry in entries if "impersonatedUser" in entry and entry["responseStatus"]["code"] < 300]
        assert acted == []
    assert capfd.readouterr().err.count("components use the kubeconfig's user") == 2


async def plain_user(up: Cluster) -> Path:
    """The kubeconfig of a user with all rights except impersonation."""
    token = create_token(
        up.server.folder / "tokens.json", StaticToken(name="plain", user="plain"), now=datetime.now(UTC)
    )
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}, {"nonResourceURLs": ["*"], "verbs": ["get"]}]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "plain"}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "plain"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "plain"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "plain"}],
    }  # fmt: skip
    for obj in (role, binding):
        await up.create(obj)
    access = read_access(up.server.folder / "kubeconfig")
    assert access is not None
    path = up.folder / "plain"
    write_private(path, render_kubeconfig(Access(access.url, access.ca_pem, token), user="plain"))
    async with connect(load(path), clock=RealClock()) as client:  # the server takes a new token over after a moment
        await eventually_despite_outages(lambda: client.request("GET", "/version"))
    return path


@pytest.mark.timeout(120)
async def test_a_component_waits_for_its_server_until_it_is_stopped(tmp_path: Path) -> None:
    async with cluster(tmp_path) as up:
        await up.server.kill()
        part, other = up.part("part", "controllers,scheduler"), up.part("other", "scheduler")
        starting = asyncio.create_task(part.start())
        await ends_while_it_waits(other)
        assert not starting.done()
        await up.server.start()
        await starting
        await leads(up, part)


async def ends_while_it_waits(part: Part) -> None:
    process = await asyncio.create_subprocess_exec(*part.command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"does not answer yet" not in (line := await process.stderr.readline()):
                assert line, "it ended by itself"
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
