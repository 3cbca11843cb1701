"""Settings that change while an edge runs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import yaml

from shoal.base.clock import RealClock
from shoal.client import Client, Unreachable, connect, load
from shoal.client.transport import Transport
from shoal.errors import ConfigError
from shoal.navigator.edge.config import EdgeConfig, KubernetesConfig, NamespaceConfig, SyncConfig
from shoal.testing import istio
from shoal.testing.navigator import EdgeProcess, recording_manager, running_edge
from shoal.testing.servers import local_server, server_process
from shoal.testing.waiting import eventually

PLACES = ("team-a", "team-b", "other")


def services() -> list[dict[str, Any]]:
    return [*(istio.namespace(place) for place in PLACES), *(istio.service(place, "web") for place in PLACES)]


async def test_sighup_reads_the_settings_again_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"

    def write(**settings: Any) -> None:
        file.write_text(yaml.safe_dump(settings))

    async with AsyncExitStack() as stack:
        server = stack.enter_context(server_process(tmp_path / "cluster", "--port", "0", "--components", "apiserver"))
        manager = await stack.enter_async_context(recording_manager())
        client = await stack.enter_async_context(connect(load(server.kubeconfig), clock=RealClock()))
        await istio.create(client, *services())
        write(sync={"interval_s": 5, "min_interval_s": 1}, namespaces={"include": ["team-a"]})
        edge = EdgeProcess(tmp_path, manager.join_file(), server.kubeconfig, CONFIG=str(file))
        await asyncio.to_thread(edge.start)
        try:
            await manager.until(lambda: manager.model.keys("services") == {"team-a/web"})
            pid, connections = edge.pid, manager.claims

            def settings() -> dict[str, str]:
                found: dict[str, str] = orjson.loads(edge.ask("/status")[1])["settings"]
                return found

            write(sync={"interval_s": 7, "min_interval_s": 1}, namespaces={"include": ["team-*"]})
            edge.reload()
            await manager.until(lambda: manager.model.keys("services") == {"team-a/web", "team-b/web"})
            assert settings()["sync.interval_s"] == "7.0" and settings()["namespaces.include"] == "team-*"
            write(sync={"interval_s": -1})
            edge.reload()
            await eventually(lambda: "not reloaded" in (tmp_path / "edge.log").read_text(), timeout_s=10)
            assert settings()["sync.interval_s"] == "7.0"
            assert (edge.pid, manager.claims) == (pid, connections), "it has restarted, or connected again"
        finally:
            edge.stop()


async def test_a_change_of_the_filter_removes_and_adds_only_what_it_concerns() -> None:
    async with local_server() as server, recording_manager() as manager:
        client = Client(cast(Transport, server.transport), clock=RealClock())
        await istio.create(client, *services())
        async with running_edge(client, manager.join_file()) as edge:
            everything = {f"{place}/web" for place in PLACES}
            await manager.until(lambda: everything <= manager.model.keys("services"))
            removed: list[str] = []
            edge.watching.objects("services").add_handler(
                lambda change: removed.append(str(change.key)) if change.type == "deleted" else None
            )

            def take(**config: Any) -> None:
                edge.configure(EdgeConfig(join=edge.config.join, namespaces=NamespaceConfig(**config)))

            take(include=("team-a", "team-b"))
            await manager.until(lambda: manager.model.keys("services") == {"team-a/web", "team-b/web"})
            assert not [key for key in removed if "team" in key]
            take(exclude=("team-b", "default", "kube-*"))
            await manager.until(lambda: manager.model.keys("services") == {"team-a/web", "other/web"})
            take()
            await manager.until(lambda: everything <= manager.model.keys("services"))
            assert not [key for key in removed if "team-a" in key], "an object that stayed wanted disappeared"


async def test_options_of_the_manager_win_and_wrong_ones_change_nothing() -> None:
    async with local_server() as server, recording_manager() as manager:
        client = Client(cast(Transport, server.transport), clock=RealClock())
        async with running_edge(client, manager.join_file(), sync=SyncConfig(interval_s=20)) as edge:
            await manager.until(lambda: manager.model.verifications)
            edge.take_options({"sync.interval_s": "6", "requests.workers": "2"})
            assert (edge.machine.interval_s, edge.config.requests.workers) == (6.0, 2)
            for options in ({"sync.interval_s": "0"}, {"join": "x"}, {"requests.workers": "many"}):
                with pytest.raises(ConfigError, match=next(iter(options)).rpartition(".")[2]):
                    edge.take_options(options)
                assert edge.config.sync.interval_s == 6.0
            edge.configure(EdgeConfig(join=edge.config.join, sync=SyncConfig(interval_s=50)))
            assert edge.config.sync.interval_s == 6.0, "the manager's option wins"
            edge.take_options({})
            assert edge.machine.interval_s == 50.0


class Failing:
    """A transport whose requests for Services fail while ``down``."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.down = True
        self.failed = 0

    async def request(self, method: str, target: str, **more: Any) -> Any:
        self._check(target)
        return await self._inner.request(method, target, **more)

    async def stream(self, method: str, target: str, **more: Any) -> Any:
        self._check(target)
        return await self._inner.stream(method, target, **more)

    def _check(self, target: str) -> None:
        if self.down and "/services" in target:
            self.failed += 1
            raise Unreachable("cut")

    async def close(self) -> None: ...


async def test_a_kind_is_given_up_after_its_retries_until_the_settings_change() -> None:
    async with local_server() as server, recording_manager() as manager:
        failing = Failing(cast(Transport, server.transport))
        client = Client(cast(Transport, failing), clock=RealClock())
        retries = KubernetesConfig(retry_count=3, retry_base_s=0.01, retry_cap_s=0.02)
        async with running_edge(client, manager.join_file(), kubernetes=retries) as edge:
            await manager.until(lambda: "given up after 4" in edge.machine.kind_rows["services"].error)
            assert failing.failed == 4
            await manager.until(lambda: manager.model.state("pods") == "synced")
            await manager.until(lambda: manager.model.state("services") == "failing")
            failing.down = False
            edge.take_options({"kubernetes.retry_count": "5"})
            await manager.until(lambda: manager.model.keys("services") == {"default/kubernetes"})
            await manager.until(lambda: manager.model.state("services") == "synced")
