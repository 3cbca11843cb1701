"""Makes the Deployments of a cluster's agents run the image that the control plane names.

The agent changes its own Deployment first, and only that: what it starts either comes up and goes on, with this code
again, or never takes over. Once an agent runs the wanted image, it changes those beside it: the edge, the shard
manager. So a bad image stops at the first Deployment, where the old pods serve on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.client import Client, PatchType, Scope, TransportError, builtin
from shoal.errors import ApiError, Forbidden, NotFound
from shoal.krane.config import OWN_IMAGE
from shoal.krane.deployments.instances import fault_of
from shoal.krane.rights import with_grant
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

_LIMIT_S = 5.0  # a heartbeat must not wait longer

log = get_logger("krane.upgrade")


class Upgrade(Protocol):
    """What an agent says of its image, and does about the wanted one."""

    def state(self) -> pb.AgentImage | None: ...

    async def follow(self, wanted: str) -> None: ...


class NoUpgrade:
    """For an agent that is no Deployment, or not of its cluster."""

    def state(self) -> pb.AgentImage | None:
        return None

    async def follow(self, wanted: str) -> None:
        return


class DeploymentUpgrade:
    """``own`` and ``beside`` are Deployments of one namespace; ``running`` is the image of this process."""

    def __init__(
        self, client: Client, namespace: str, own: str, beside: Sequence[str], running: str, *, clock: Clock
    ) -> None:
        self._deployments = client.of(builtin("deployments", "apps"))
        self._pods = client.of(builtin("pods"))
        self._namespace = namespace
        self._own = own
        self._beside = tuple(beside)
        self._running = running
        self._clock = clock
        self._error = ""
        self._waiting: list[str] = []
        self._done = ""  # the image that all of them run

    def state(self) -> pb.AgentImage:
        return pb.AgentImage(running=self._running, error=self._error, waiting=self._waiting)

    async def follow(self, wanted: str) -> None:
        """Called with every heartbeat; an error is kept for the next one."""
        if not wanted or wanted == self._done:
            self._error, self._waiting = "", []
            return
        try:
            async with within(self._clock, _LIMIT_S):
                await self._step(wanted)
        except (ApiError, TransportError, TimeoutError) as error:
            said = with_grant(str(error) or "the API server did not answer in time")
            if said != self._error:
                log.warning("changing the image of the agents failed", image=wanted, reason=said)
            self._error = said

    async def _step(self, wanted: str) -> None:
        names = (self._own,) if wanted != self._running else (self._own, *self._beside)
        waiting, problems = [], []
        for name in names:
            try:
                found = await self._deployments.get(name, self._namespace)
            except NotFound:
                if name == self._own:
                    raise
                continue  # a cluster without it
            patch = image_patch(found, wanted)
            if patch is not None:
                log.info("changing the image of a Deployment", deployment=name, image=wanted)
                found = await self._deployments.patch(name, patch, self._namespace, type=PatchType.STRATEGIC)
            if not rolled_out(found):
                waiting.append(name)
            if problem := stuck(found) or (name in waiting and await self._fault(found, wanted)):
                problems.append(f"Deployment {name}: {problem}")
        self._waiting, self._error = waiting, "; ".join(problems)
        if wanted == self._running and not waiting:
            self._done = wanted

    async def _fault(self, deployment: Obj, wanted: str) -> str:
        """Why a pod with the wanted image does not get ready, long before its Deployment's controller gives up."""
        labels = deployment["spec"]["selector"]["matchLabels"]
        scope = Scope(namespace=self._namespace, label_selector=",".join(f"{key}={labels[key]}" for key in labels))
        try:
            pods = (await self._pods.list(scope)).items
        except Forbidden:
            return ""  # by the rights that an earlier version was given
        for pod in pods:
            if pod["spec"]["containers"][0].get("image") == wanted:
                reason, message = fault_of(pod.get("status") or {})
                if reason not in ("", "NotReady"):  # it has only just started
                    return f"{pod['metadata']['name']}: {reason}: {message}"
        return ""


def image_patch(deployment: Obj, wanted: str) -> Obj | None:
    """What changes the image of the first container, also where its arguments and variables name it; None when it has
    the wanted one."""
    container: Obj = deployment["spec"]["template"]["spec"]["containers"][0]
    before = container.get("image", "")
    if before == wanted:
        return None
    changed: Obj = {"name": container["name"], "image": wanted}
    if before in (container.get("args") or ()):
        changed["args"] = [wanted if each == before else each for each in container["args"]]
    if any(each["name"] == OWN_IMAGE for each in container.get("env") or ()):
        changed["env"] = [{"name": OWN_IMAGE, "value": wanted}]
    return {"spec": {"template": {"spec": {"containers": [changed]}}}}


def rolled_out(deployment: Obj) -> bool:
    """Whether all pods are of the current template, and available."""
    status: dict[str, Any] = deployment.get("status") or {}
    want = deployment["spec"].get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 1):
        return False
    counts = (status.get("replicas", 0), status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
    return all(count == want for count in counts)


def stuck(deployment: Obj) -> str:
    """Why it does not go on, as its controller says."""
    for each in (deployment.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Progressing" and each.get("status") == "False":
            return f"{each.get('reason', '')}: {each.get('message', '')}"
    return ""
