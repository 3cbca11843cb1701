"""The built-in admission plugins in real processes: their state survives a kill, and many writers share one quota."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from cluster_client import Client

from shoal.testing.databases import shared_postgres
from shoal.testing.servers import (
    PATCHES,
    LocalServer,
    ServerProcess,
    local_server,
    server_process,
    start_server_process,
)
from shoal.testing.waiting import eventually_blocking

PODS = "/api/v1/namespaces/team/pods"
QUOTAS = "/api/v1/namespaces/team/resourcequotas"
RANGES = "/api/v1/namespaces/team/limitranges"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LABELS = {"pod-security.kubernetes.io/enforce": "baseline"}


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}], **spec}}


def prepare(client: Client, pods: int) -> None:
    client.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team", "labels": LABELS}})
    client.ok("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(pods), "limits.cpu": "100"}}})
    limits = [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]
    client.ok("POST", RANGES, {"metadata": {"name": "r"}, "spec": {"limits": limits}})
    client.ok("POST", CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})


def used(client: Client) -> dict[str, str]:
    found: dict[str, str] = client.ok("GET", f"{QUOTAS}/q")["status"]["used"]
    return found


def check_all(client: Client, name: str) -> None:
    """Every plugin has its say about one pod."""
    made = client.ok("POST", PODS, a_pod(name))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (5, "usual")
    assert made["spec"]["serviceAccountName"] == "default"
    assert len(made["spec"]["tolerations"]) == 2
    status, answer = client.call("POST", PODS, a_pod("bad", hostPID=True))
    assert (status, answer["message"]) == (
        403,
        'pods "bad" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)',
    )


def test_what_the_plugins_know_survives_a_kill(tmp_path: Path) -> None:
    server = start_server_process(tmp_path, "--port", "0")
    try:
        with closing(Client(server)) as client:
            prepare(client, pods=2)
            check_all(client, "a")
        server.kill()
        server.process.wait()
        server = start_server_process(tmp_path, "--port", "0")
        with closing(Client(server)) as client:
            check_all(client, "b")
            status, answer = client.call("POST", PODS, a_pod("c"))
            assert status == 403
            assert "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in answer["message"]
            client.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
            eventually_blocking(lambda: used(client), until=lambda found: found == {"pods": "1", "limits.cpu": "1"})
            client.ok("POST", PODS, a_pod("c"))
    finally:
        server.process.terminate()
        server.process.wait(timeout=20)


def fill(server: ServerProcess, writer: int, count: int) -> Counter[int]:
    with closing(Client(server)) as client:
        return Counter(client.call("POST", PODS, a_pod(f"p-{writer}-{number}"))[0] for number in range(count))


def test_writers_who_share_a_quota_get_what_is_there_and_no_more() -> None:
    with server_process() as server, ThreadPoolExecutor(8) as threads, closing(Client(server)) as client:
        prepare(client, pods=30)
        answers = sum(threads.map(lambda writer: fill(server, writer, 10), range(8)), start=Counter[int]())
        assert answers == {201: 30, 403: 50}
        assert used(client) == {"pods": "30", "limits.cpu": "30"}
        assert len(client.ok("GET", PODS)["items"]) == 30
        client.ok("PATCH", f"{QUOTAS}/q", {"spec": {"hard": {"pods": "31"}}}, PATCHES["merge"])
        assert sum(threads.map(lambda writer: fill(server, writer + 10, 2)[201], range(8))) == 1
        client.ok("DELETE", PODS, {"gracePeriodSeconds": 0})
        eventually_blocking(lambda: used(client), until=lambda found: found == {"pods": "0", "limits.cpu": "0"})


async def test_writers_on_two_servers_share_a_quota() -> None:
    """Each server has its own view of the database, a little behind the other's."""

    url = shared_postgres().create_database()
    async with local_server(url) as one, local_server(url) as two:
        await one.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        await one.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "20"}}})
        await two.get(QUOTAS)  # a read is never older than what was acknowledged before it

        async def fill(server: LocalServer, writer: int) -> list[int]:
            return [(await server.call("POST", PODS, a_pod(f"p-{writer}-{n}"))).status for n in range(6)]

        rounds = await asyncio.gather(*(fill((one, two)[writer % 2], writer) for writer in range(8)))
        answers = Counter(status for statuses in rounds for status in statuses)
        assert answers == {201: 20, 403: 28}
        assert len((await two.get(PODS))["items"]) == 20
        assert (await two.get(f"{QUOTAS}/q"))["status"]["used"] == {"pods": "20"}


async def test_a_server_does_not_refuse_what_another_has_just_made_possible() -> None:
    url = shared_postgres().create_database()
    async with local_server(url) as one, local_server(url) as two:
        for number in range(10):
            namespace = f"/api/v1/namespaces/n{number}"
            await one.post("/api/v1/namespaces", {"metadata": {"name": f"n{number}"}})
            await two.post(f"{namespace}/pods", a_pod("a"))
            await one.post(f"{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
            await two.post(f"{namespace}/pods", a_pod("b", serviceAccountName="robot"))
            await one.post(CLASSES, {"metadata": {"name": f"c{number}"}, "value": number})
            made = await two.post(f"{namespace}/pods", a_pod("c", priorityClassName=f"c{number}"))
            assert made["spec"]["priority"] == number
