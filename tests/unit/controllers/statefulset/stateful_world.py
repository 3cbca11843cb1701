"""A StatefulSet with its pods, and a world that executes the steps of its plan."""

from __future__ import annotations

from typing import Any

from shoal.controllers.pods.template import controller_reference
from shoal.controllers.revisions.plan import HASH_LABEL, new_revision
from shoal.controllers.statefulset.model import (
    CreateClaims,
    CreatePod,
    DeletePod,
    Refuse,
    StatefulSetPlan,
    UpdateClaim,
    UpdatePod,
)
from shoal.controllers.statefulset.plan import plan
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.testing.workloads import NOW, stateful_set, stored, template

CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


class World:
    def __init__(self, replicas: int = 3, **spec: Any) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
        defaults = {"updateStrategy": strategy, "template": template("web", "app:1")}
        self.owner = stored(stateful_set("web", replicas, **(defaults | spec)), uid="the-set")
        self.pods: dict[str, Obj] = {}
        self.claims: dict[str, Obj] = {}
        self.now = NOW
        self.revisions: dict[str, Obj] = {}
        self.done: list[str] = []  # what the last step did

    def revision(self, image: str) -> Obj:
        if image not in self.revisions:
            reference = controller_reference(self.owner, "apps/v1", "StatefulSet")
            owner = {**self.owner, "spec": {**self.owner["spec"], "template": template("web", image)}}
            self.revisions[image] = new_revision(owner, reference, len(self.revisions) + 1, 0, HASH_LABEL)
        return self.revisions[image]

    @property
    def image(self) -> str:
        found: str = self.owner["spec"]["template"]["spec"]["containers"][0]["image"]
        return found

    def step(self) -> StatefulSetPlan:
        update = self.revision(self.image)
        name = (self.owner.get("status") or {}).get("currentRevision")
        current = next((each for each in self.revisions.values() if each["metadata"]["name"] == name), update)
        decided = plan(
            self.owner, list(self.pods.values()), claim_of=self.claims.get, current=current, update=update,
            collisions=0, now=self.now,
        )  # fmt: skip
        self.done = []
        for action in decided.actions:
            match action:
                case CreatePod(pod, claims):
                    self._claim(claims)
                    self.done.append(f"create {pod['metadata']['name']}")
                    pending = stored(pod, created_at=self.now, phase="Pending")
                    self.pods[pod["metadata"]["name"]] = pending
                case CreateClaims(_, claims):
                    self._claim(claims)
                case UpdatePod(pod):
                    self.done.append(f"update {pod['metadata']['name']}")
                    self.pods[pod["metadata"]["name"]] = pod
                case UpdateClaim(_, claim):
                    self.done.append(f"claim {claim['metadata']['name']}")
                    self.claims[claim["metadata"]["name"]] = claim
                case DeletePod(pod):
                    self.done.append(f"delete {pod['metadata']['name']}")
                    about = {**pod["metadata"], "deletionTimestamp": format_time(self.now)}
                    self.pods[pod["metadata"]["name"]] = {**pod, "metadata": about}
                case Refuse(pod, why):
                    self.done.append(f"refuse {pod['metadata']['name']}: {why}")
        self.owner = {**self.owner, "status": decided.status}
        return decided

    def _claim(self, claims: tuple[Obj, ...]) -> None:
        for claim in claims:
            self.done.append(f"create {claim['metadata']['name']}")
            self.claims[claim["metadata"]["name"]] = stored(claim)

    def change(self, **spec: Any) -> None:
        about = {**self.owner["metadata"], "generation": self.owner["metadata"]["generation"] + 1}
        self.owner = {**self.owner, "metadata": about, "spec": {**self.owner["spec"], **spec}}

    def roll(self, image: str) -> None:
        self.change(template=template("web", image))

    def report(self, name: str, *, phase: str = "Running", ready: bool = True) -> None:
        pod = self.pods[name]
        stamp = format_time(self.now)
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": stamp}
        self.pods[name] = {**pod, "status": {"phase": phase, "conditions": [condition]}}

    def end(self, name: str) -> None:
        """A pod that is being deleted is gone."""
        assert self.pods[name]["metadata"].get("deletionTimestamp")
        del self.pods[name]

    def settle(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod["metadata"].get("deletionTimestamp"):
                self.end(name)
            elif (pod.get("status") or {}).get("phase") == "Pending":
                self.report(name)

    def complete(self, limit: int = 100) -> list[str]:
        """Settle and step until nothing happens; what was done on the way."""
        story: list[str] = []
        for _ in range(limit):
            self.settle()
            before = self.owner.get("status")
            decided = self.step()
            story += self.done
            if not decided.actions and decided.status == before:
                return story
        raise AssertionError("it does not come to an end")

    def images(self) -> dict[str, str]:
        return {name: pod["spec"]["containers"][0]["image"] for name, pod in sorted(self.pods.items())}

    def available(self, name: str) -> bool:
        pod = self.pods.get(name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return False
        conditions = pod["status"].get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
