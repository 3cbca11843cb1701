"""Upgrading the Deployments of a cluster's agents: the own one first, the others once the wanted image runs."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.client import Client
from shoal.client.transport import Reply, Transport
from shoal.krane.rights import GRANT
from shoal.krane.upgrade import OWN_IMAGE, DeploymentUpgrade, image_patch, rolled_out
from shoal.kube.objects import Obj

OLD, NEW = "registry.example.com/shoal:1", "registry.example.com/shoal:2"


def deployment(name: str, image: str = OLD, *args: str) -> Obj:
    env = [{"name": OWN_IMAGE, "value": image}] if name == "krane" else []
    container = {"name": "main", "image": image, "args": list(args), "env": env}
    return {
        "metadata": {"name": name, "namespace": "system", "generation": 1},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": [container]}},
        },
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    }


class Server:
    """Deployments; a change of one is rolled out when the test says so."""

    def __init__(self, *deployments: Obj) -> None:
        self.objects = {each["metadata"]["name"]: each for each in deployments}
        self.patched: list[str] = []
        self.pods: list[Obj] = []
        self.error: tuple[int, Obj] | None = None

    async def request(self, method: str, target: str, *, body: bytes = b"", **_: Any) -> Reply:
        await asyncio.sleep(0)
        if self.error is not None:
            return Reply(self.error[0], {}, orjson.dumps(self.error[1]))
        name = target.partition("?")[0].rpartition("/")[2]
        if name == "pods":
            return Reply(200, {}, orjson.dumps({"kind": "PodList", "metadata": {}, "items": self.pods}))
        found = self.objects.get(name)
        if found is None:
            return Reply(404, {}, orjson.dumps({"kind": "Status", "reason": "NotFound", "code": 404, "message": "no"}))
        if method == "PATCH":
            self.patched.append(name)
            (change,) = orjson.loads(body)["spec"]["template"]["spec"]["containers"]
            (container,) = found["spec"]["template"]["spec"]["containers"]
            container.update(change)
            found["metadata"]["generation"] += 1
        return Reply(200, {}, orjson.dumps(found))

    def roll_out(self, name: str) -> None:
        found = self.objects[name]
        found["status"]["observedGeneration"] = found["metadata"]["generation"]

    def image(self, name: str) -> str:
        container: Obj = self.objects[name]["spec"]["template"]["spec"]["containers"][0]
        return str(container["image"])


def upgrade(server: Server, running: str, clock: FakeClock) -> DeploymentUpgrade:
    client = Client(cast(Transport, server), clock=clock)
    return DeploymentUpgrade(client, "system", "krane", ("edge", "shards"), running, clock=clock)


async def test_the_own_deployment_goes_first_and_the_others_follow_from_the_new_one(clock: FakeClock) -> None:
    server = Server(deployment("krane"), deployment("edge"))
    before = upgrade(server, OLD, clock)
    await before.follow("")
    assert server.patched == []
    for _ in range(2):
        await before.follow(NEW)
    assert server.patched == ["krane"] and server.image("edge") == OLD
    state = before.state()
    assert (state.running, list(state.waiting), state.error) == (OLD, ["krane"], "")
    server.roll_out("krane")

    after = upgrade(server, NEW, clock)
    await after.follow(NEW)
    assert server.patched == ["krane", "edge"] and list(after.state().waiting) == ["edge"]
    server.roll_out("edge")
    await after.follow(NEW)
    assert not after.state().waiting and not after.state().error
    server.error = (500, {})
    await after.follow(NEW)
    assert not after.state().error, "what is done is not asked for again"


async def test_a_deployment_that_does_not_go_on_is_told_and_nothing_else_is_touched(clock: FakeClock) -> None:
    server = Server(deployment("krane"), deployment("edge"))
    here = upgrade(server, OLD, clock)
    await here.follow(NEW)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    server.objects["krane"]["status"]["conditions"] = [condition]
    await here.follow(NEW)
    assert here.state().error == "Deployment krane: ProgressDeadlineExceeded: timed out"
    assert server.patched == ["krane"]
    await here.follow("")
    assert not here.state().error and not here.state().waiting


async def test_what_keeps_a_new_pod_from_starting_is_told_before_its_deployment_gives_up(clock: FakeClock) -> None:
    server = Server(deployment("krane"))
    waiting = {"reason": "ImagePullBackOff", "message": f"{NEW}: not found"}
    for name, image, state in (("old", OLD, {"running": {}}), ("new", NEW, {"waiting": waiting})):
        status = {"containerStatuses": [{"name": "main", "image": image, "state": state}]}
        server.pods.append({"metadata": {"name": name}, "spec": {"containers": [{"image": image}]}, "status": status})
    here = upgrade(server, OLD, clock)
    await here.follow(NEW)
    assert here.state().error == f"Deployment krane: new: ImagePullBackOff: {NEW}: not found"
    server.pods.pop()
    await here.follow(NEW)
    assert not here.state().error and list(here.state().waiting) == ["krane"]


async def test_a_missing_right_is_named_with_what_grants_it(clock: FakeClock) -> None:
    server = Server(deployment("krane"))
    refusal = 'deployments is forbidden: User "krane" cannot patch resource "deployments"'
    server.error = (403, {"kind": "Status", "reason": "Forbidden", "code": 403, "message": refusal})
    here = upgrade(server, OLD, clock)
    await here.follow(NEW)
    assert here.state().error.startswith(refusal) and GRANT in here.state().error


@given(st.lists(st.sampled_from([OLD, "--worker-image", "shard", OLD + "x"]), max_size=5))
def test_the_patch_names_the_new_image_wherever_the_old_one_was(args: list[str]) -> None:
    patch = image_patch(deployment("krane", OLD, *args), NEW)
    assert patch is not None
    (changed,) = patch["spec"]["template"]["spec"]["containers"]
    assert changed["image"] == NEW and changed["env"] == [{"name": OWN_IMAGE, "value": NEW}]
    assert changed.get("args", args) == [NEW if each == OLD else each for each in args]
    assert image_patch(deployment("krane", NEW, *args), NEW) is None


@pytest.mark.parametrize(
    ("field", "value"), [("observedGeneration", 0), ("updatedReplicas", 1), ("availableReplicas", 1), ("replicas", 3)]
)
def test_a_rollout_is_over_when_all_pods_are_new_and_available(field: str, value: int) -> None:
    made = deployment("krane")
    assert rolled_out(made)
    changed = deepcopy(made)
    changed["status"][field] = value
    assert not rolled_out(changed)
