"""A DaemonSet with nodes and pods, and a world that executes the steps of its plan."""

from __future__ import annotations

from typing import Any

from shoal.controllers.daemonset.eligibility import node_of
from shoal.controllers.daemonset.model import DaemonSetPlan
from shoal.controllers.daemonset.plan import plan, pods_for, slots_of
from shoal.controllers.pods.template import controller_reference, hash_of
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.testing.workloads import NOW, daemon_set, node, stored, template


def rolling(unavailable: int | str = 1, surge: int | str = 0) -> Obj:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}


class World:
    def __init__(self, *nodes: str | Obj, **spec: Any) -> None:
        defaults = {"updateStrategy": rolling(), "template": template("web", "app:1")}
        self.owner = stored(daemon_set("web", **(defaults | spec)), uid="the-set")
        made = [node(each) if isinstance(each, str) else each for each in nodes]
        self.nodes = {each["metadata"]["name"]: each for each in made}
        self.pods: dict[str, Obj] = {}
        self.now = NOW
        self.waits: dict[str, float] = {}
        self._numbers = 0

    @property
    def mark(self) -> str:
        return hash_of(self.owner["spec"]["template"], 0)

    def step(self) -> DaemonSetPlan:
        slots = slots_of(self.owner, self.nodes.values(), self.pods.values())
        decided = plan(self.owner, slots, self.mark, waits_s=lambda name: self.waits.get(name, 0.0), now=self.now)
        reference = controller_reference(self.owner, "apps/v1", "DaemonSet")
        for made in pods_for(self.owner, reference, self.mark, decided.nodes):
            self._numbers += 1
            name = f"web-{self._numbers:04}"
            about = {**made["metadata"], "name": name}
            self.pods[name] = stored({**made, "metadata": about}, created_at=NOW + self._numbers, phase="Pending")
        for gone in decided.deleted:
            about = {**gone["metadata"], "deletionTimestamp": format_time(self.now)}
            self.pods[gone["metadata"]["name"]] = {**gone, "metadata": about}
        self.owner = {**self.owner, "status": decided.status}
        return decided

    def change(self, **spec: Any) -> None:
        about = {**self.owner["metadata"], "generation": self.owner["metadata"]["generation"] + 1}
        self.owner = {**self.owner, "metadata": about, "spec": {**self.owner["spec"], **spec}}

    def roll(self, image: str) -> None:
        self.change(template=template("web", image))

    def report(self, name: str, *, phase: str = "Running", ready: bool = True) -> None:
        pod = self.pods[name]
        stamp = format_time(self.now)
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": stamp}
        spec = {**pod["spec"], "nodeName": node_of(pod)}
        self.pods[name] = {**pod, "spec": spec, "status": {"phase": phase, "conditions": [condition]}}

    def settle(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod["metadata"].get("deletionTimestamp"):
                del self.pods[name]
            elif pod["status"]["phase"] == "Pending" and node_of(pod) in self.nodes:
                self.report(name)

    def complete(self, limit: int = 100) -> None:
        for _ in range(limit):
            self.settle()
            before = self.owner.get("status")
            decided = self.step()
            if not decided.nodes and not decided.deleted and decided.status == before:
                return
        raise AssertionError("it does not come to an end")

    def running(self) -> dict[str, list[str]]:
        """Node → images of the pods that are there to stay."""
        found: dict[str, list[str]] = {}
        for pod in self.pods.values():
            if not pod["metadata"].get("deletionTimestamp"):
                found.setdefault(node_of(pod), []).append(pod["spec"]["containers"][0]["image"])
        return found

    def available_on(self, name: str) -> bool:
        return any(
            node_of(pod) == name and not pod["metadata"].get("deletionTimestamp") and _ready(pod)
            for pod in self.pods.values()
        )


def _ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
