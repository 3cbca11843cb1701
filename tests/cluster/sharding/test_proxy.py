"""Unmodified controllers behind the proxy: they see and write only objects of their shard's slots."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.app.demo.websites import GROUP, VERSION, definition
from shoal.app.kubectl import kubectl_word
from shoal.app.ports import any_free
from shoal.app.sharding.proxy import run_proxy
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, builtin, connect, load
from shoal.errors import Conflict, Expired, MethodNotAllowed, NotFound, Unauthorized
from shoal.sharding.model import Move, MovePhase, SlotEntry, epoch_of, slot_label, slot_of
from shoal.sharding.worker import WorkerConfig
from shoal.testing.servers import server_process
from shoal.testing.sharding import CONFIG, SlotWorld
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"
MAPS = builtin("configmaps")
TARGETS = [{"group": GROUP, "kind": "Website", "controlled": [{"kind": "ConfigMap"}]}]


class Proxies:
    """A server, a slot table by hand, and proxies as tasks of this process."""

    def __init__(self, slots: SlotWorld, kubeconfig: str, folder: Path) -> None:
        self.slots = slots
        self.client = slots.client
        self.sites = slots.client.resource(GROUP, VERSION, "websites")
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._tasks: list[asyncio.Task[None]] = []

    async def proxy(self, shard: str, **more: Any) -> Path:
        """Start a proxy; returns its kubeconfig."""
        folder = Path(os.path.relpath(self._folder / shard))  # as a user may give it
        ready = asyncio.Event()
        config = WorkerConfig(config=CONFIG, shard=shard)
        running = run_proxy(
            config, asyncio.Event(), ready.set, folder=folder, host=HOST, port=any_free(HOST),
            kubeconfig=Path(self._kubeconfig), **more,
        )  # fmt: skip
        self._tasks.append(asyncio.create_task(running, name=shard))
        await asyncio.wait_for(ready.wait(), 20)
        return folder / "kubeconfig"

    async def site(self, name: str, slot: int) -> None:
        about = {"name": name, "namespace": "default", "labels": {slot_label(CONFIG): str(slot)}}
        await self.sites.create({"metadata": about, "spec": {"page": name}})

    async def give(self, owner: str, epoch: int, *slots: int) -> None:
        term = await self.slots.held(owner)
        await self.slots.give(*(SlotEntry(slot=slot, owner=owner, term=term, epoch=epoch) for slot in slots))

    async def close(self) -> None:
        await cancel_all(*self._tasks)


@asynccontextmanager
async def a_world(tmp_path: Path) -> AsyncIterator[Proxies]:
    with server_process(None, "--port", "0", "--components", "apiserver") as server:
        async with asyncio.timeout(90), connect(load(server.kubeconfig), clock=RealClock()) as client:
            slots = SlotWorld(client)
            await slots.begin(definition(), targets=TARGETS)
            proxies = Proxies(slots, server.kubeconfig, tmp_path)
            try:
                yield proxies
            finally:
                await proxies.close()


@asynccontextmanager
async def through(kubeconfig: Path) -> AsyncIterator[Client]:
    async with connect(load(str(kubeconfig)), clock=RealClock(), field_manager="stranger") as client:
        yield client


def websites(client: Client) -> Any:
    return client.resource(GROUP, VERSION, "websites")


async def names(client: Client) -> list[str]:
    return sorted(it["metadata"]["name"] for it in (await websites(client).list()).items)


async def test_a_controller_sees_and_writes_its_share(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        kubeconfig = await world.proxy("a")
        for number in range(4):
            await world.site(f"s{number}", number)
        await world.give("a", 5, 0, 1)
        async with through(kubeconfig) as client:
            await eventually(lambda: _equal(names(client), ["s0", "s1"]))
            mine = await websites(client).get("s0", "default")
            await websites(client).patch("s0", {"spec": {"page": "new"}}, "default")
            await websites(client).patch("s0", {"status": {"ready": 1}}, "default", subresource="status")
            assert epoch_of(await world.sites.get("s0", "default"), CONFIG) == 5
            seen = [await websites(client).get("s0", "default"), *(await websites(client).list()).items]
            seen.append(await websites(client).patch("s0", {"spec": {"page": "new"}}, "default"))
            assert [each for each in seen if "annotations" in each["metadata"]] == [], (
                "a change that is none of its own"
            )
            with pytest.raises(Conflict, match="belongs to another shard"):
                await websites(client).patch("s2", {"spec": {"page": "new"}}, "default")
            with pytest.raises(Conflict, match="resourceVersion"):
                about = {key: value for key, value in mine["metadata"].items() if key != "resourceVersion"}
                await websites(client).replace({**mine, "metadata": about})
            with pytest.raises(Conflict):
                await websites(client).replace(mine)  # of a version that was
            with pytest.raises(MethodNotAllowed, match="one by one"):
                await client.request("DELETE", f"/apis/{GROUP}/{VERSION}/namespaces/default/websites")
            owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Website", "name": "s0", "controller": True,
                     "uid": mine["metadata"]["uid"]}  # fmt: skip
            about = {"name": "child", "namespace": "default", "ownerReferences": [owner]}
            await client.of(MAPS).create({"metadata": about, "data": {"a": "1"}})
            await client.of(MAPS).create({"metadata": {"name": "own", "namespace": "default"}})
            child = await world.client.of(MAPS).get("child", "default")
            assert (child["metadata"]["labels"][slot_label(CONFIG)], epoch_of(child, CONFIG)) == ("0", 5)
            await client.of(MAPS).patch("own", {"data": {"b": "2"}}, "default")
            await world.give("a", 7, 0)

            async def family() -> tuple[int, int]:
                """A write to the child claims its owner too."""
                await client.of(MAPS).patch("child", {"data": {"a": "2"}}, "default")
                found = await world.client.of(MAPS).get("child", "default"), await world.sites.get("s0", "default")
                return epoch_of(found[0], CONFIG), epoch_of(found[1], CONFIG)

            await eventually(lambda: _equal(family(), (7, 7)))
            await client.of(MAPS).delete("child", "default")
            await websites(client).delete("s1", "default")
            assert await names(client) == ["s0"]


async def _equal(asking: Awaitable[Any], wanted: Any) -> bool:
    return bool(await asking == wanted)


async def test_an_applied_child_has_the_slot_of_its_owner_when_it_is_created(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        kubeconfig = await world.proxy("a")
        await world.site("mine", 0)
        await world.site("other", 3)
        await world.give("a", 5, 0)
        owners = {name: await world.sites.get(name, "default") for name in ("mine", "other")}

        def child(name: str, owner: str, **data: str) -> dict[str, Any]:
            reference = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Website", "name": owner, "controller": True,
                         "uid": owners[owner]["metadata"]["uid"]}  # fmt: skip
            about = {"name": name, "namespace": "default", "ownerReferences": [reference]}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}

        async def marks(name: str) -> tuple[str, int, dict[str, str]]:
            found = await world.client.of(MAPS).get(name, "default")
            return found["metadata"]["labels"][slot_label(CONFIG)], epoch_of(found, CONFIG), found["data"]

        async with through(kubeconfig) as client:
            await eventually(lambda: _equal(names(client), ["mine"]))
            await client.of(MAPS).apply(child("child", "mine", a="1", b="1"))
            assert await marks("child") == ("0", 5, {"a": "1", "b": "1"})
            assert epoch_of(await world.sites.get("mine", "default"), CONFIG) == 5
            await client.of(MAPS).apply(child("child", "mine", a="2"))
            assert await marks("child") == ("0", 5, {"a": "2"})  # what is not applied any more goes, the slot stays
            with pytest.raises(Conflict, match="belongs to another shard"):
                await client.of(MAPS).apply(child("strange", "other", a="1"))
            await client.of(MAPS).apply(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": "default"}}
            )
            page = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Website", "spec": {"page": "x"}}
            await websites(client).apply({**page, "metadata": {"name": "new", "namespace": "default"}})
            assert (await world.sites.get("new", "default"))["spec"]["page"] == "x"
            with pytest.raises(NotFound):
                await websites(client).patch("none", {"spec": {"page": "x"}}, "default")
            await world.give("a", 8, 0)

            async def again() -> tuple[str, int, dict[str, str]]:
                await client.of(MAPS).apply(child("child", "mine", a="3"))
                return await marks("child")

            await eventually(lambda: _equal(again(), ("0", 8, {"a": "3"})))


async def test_a_move_ends_watches_so_that_controllers_list_again(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        kubeconfig = await world.proxy("a")
        await world.site("one", 1)
        await world.site("two", 2)
        await world.give("a", 5, 1)
        async with through(kubeconfig) as client:
            await eventually(lambda: _equal(names(client), ["one"]))
            listed = await websites(client).list()
            watch = await websites(client).watch(resource_version=listed.resource_version)
            async with watch:
                await world.sites.patch("one", {"spec": {"page": "x"}}, "default")
                events = watch.batches()
                assert [event.object["metadata"]["name"] for event in await anext(events)] == ["one"]
                await world.give("a", 6, 2)
                with pytest.raises(Expired):
                    async for _ in events:
                        pass
            await eventually(lambda: _equal(names(client), ["one", "two"]))
            page = await websites(client).page(limit=1)
            await world.give("a", 6, 3)

            async def rest() -> bool:
                try:
                    await websites(client).page(limit=1, continue_token=page.continue_token)
                except Expired:
                    return True
                return False

            await eventually(rest)  # the first page was of another share
            late = await websites(client).watch(resource_version=listed.resource_version)
            async with late:  # the list it follows was of another share
                with pytest.raises(Expired):
                    async for _ in late.batches():
                        pass


async def test_a_slot_is_handed_over_after_its_writes_and_a_wrong_token_is_refused(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        kubeconfig = await world.proxy("a")
        await world.site("one", 1)
        await world.give("a", 5, 1)
        async with through(kubeconfig) as client:
            await eventually(lambda: _equal(names(client), ["one"]))
            term = await world.slots.held("a")
            move = Move(phase=MovePhase.DRAIN, to="b", to_term=1, next_epoch=6)
            await world.slots.give(SlotEntry(slot=1, owner="a", term=term, epoch=5, move=move))
            await eventually(lambda: _equal(world.slots.acks("a"), {1: "drained"}))
            with pytest.raises(Conflict, match="belongs to another shard"):
                await websites(client).patch("one", {"spec": {"page": "late"}}, "default")
        access = load(str(kubeconfig))
        async with connect(replace(access, token="guessed"), clock=RealClock()) as stranger:
            with pytest.raises(Unauthorized, match="bearer token"):
                await names(stranger)


OPERATOR = """
import kopf

@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)

@kopf.on.create("example.shoal.dev", "v1", "websites")
@kopf.on.update("example.shoal.dev", "v1", "websites")
@kopf.on.resume("example.shoal.dev", "v1", "websites")
def made(name, patch, spec, **_):
    import os
    patch.status["by"] = os.environ["WHO"]
    patch.status["page"] = spec.get("page")
"""


class Operators:
    """kopf operators as processes, unaware of sharding."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = folder / "operator.py"
        self._script.write_text(OPERATOR)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, kubeconfig: Path) -> None:
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "WHO": name}
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", str(self._script)]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("?.log")))

    def stop(self) -> None:
        for operator in self._running:
            operator.terminate()
        for operator in self._running:
            operator.wait(15)


async def test_an_unmodified_kopf_operator_is_sharded_three_ways(tmp_path: Path) -> None:
    operators = Operators(tmp_path)

    try:
        async with a_world(tmp_path) as world:

            async def handled() -> dict[str, str]:
                items = (await world.sites.list()).items
                return {it["metadata"]["name"]: (it.get("status") or {}).get("by", "") for it in items}

            async def comes(wanted: dict[str, str]) -> None:
                try:
                    await eventually(lambda: _equal(handled(), wanted), timeout_s=40)
                except AssertionError:
                    raise AssertionError(f"{await handled()}\n{operators.said()}") from None

            for number, shard in enumerate("abc"):
                operators.start(shard, await world.proxy(shard))
                await world.give(shard, 5, *range(number * 3, number * 3 + 3))
            for slot in range(9):
                await world.site(f"s{slot}", slot)
            wanted = {f"s{slot}": "abc"[slot // 3] for slot in range(9)}
            await comes(wanted)
            await world.give("b", 6, 0)  # the first shard's slot goes to the second
            await world.sites.patch("s0", {"spec": {"page": "again"}}, "default")
            await comes({**wanted, "s0": "b"})
    finally:
        operators.stop()


def kubectl(kubeconfig: Path, *words: str, text: str = "") -> str:
    """What kubectl prints, or its error as an exception."""
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    command = [*kubectl_word().split(), *words, "--request-timeout=20s"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("way", ["--server-side=false", "--server-side"])
async def test_kubectl_apply_creates_and_changes_objects_through_the_proxy(tmp_path: Path, way: str) -> None:
    async with a_world(tmp_path) as world:
        kubeconfig = await world.proxy("a")
        await world.give("a", 5, 1)

        async def apply(page: str) -> str:
            text = f"apiVersion: {GROUP}/{VERSION}\nkind: Website\nmetadata: {{name: new}}\nspec: {{page: {page}}}\n"
            return await asyncio.to_thread(kubectl, kubeconfig, "apply", way, "-f", "-", text=text)

        assert "new" in await apply("one")
        made = await world.sites.get("new", "default")
        assert made["spec"]["page"] == "one"
        assert slot_of(made, CONFIG) is None, "any shard may create an object; the manager assigns its slot"
        await world.sites.patch("new", {"metadata": {"labels": {slot_label(CONFIG): "1"}}}, "default")
        assert "new" in await apply("two")
        changed = await world.sites.get("new", "default")
        assert (changed["spec"]["page"], epoch_of(changed, CONFIG), slot_of(changed, CONFIG)) == ("two", 5, 1)
        listed = await asyncio.to_thread(kubectl, kubeconfig, "get", "websites", "-o", "name")
        assert "new" in listed
        assert "page" in await asyncio.to_thread(kubectl, kubeconfig, "explain", "website.spec")
