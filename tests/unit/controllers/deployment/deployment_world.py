"""A Deployment with its ReplicaSets, and a world that executes the steps of its plan."""

from __future__ import annotations

from typing import Any

from shoal.controllers.deployment.model import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    REVISION,
    CreateReplicaSet,
    DeleteReplicaSet,
    DeploymentPlan,
    UpdateReplicaSet,
    bounds_of,
)
from shoal.controllers.deployment.plan import plan
from shoal.controllers.deployment.replicasets import new_replica_set
from shoal.kube.objects import Obj
from shoal.testing.workloads import NOW, deployment, stored, template


def rolling(surge: int | str = "25%", unavailable: int | str = "25%") -> Obj:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def make_deployment(replicas: int = 10, image: str = "app:1", **spec: Any) -> Obj:
    defaults = {
        "strategy": rolling(), "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
        "template": template("web", image),
    }  # fmt: skip
    return stored(deployment("web", replicas, **(defaults | spec)), uid="the-deployment")


def make_set(
    owner: Obj, image: str, replicas: int, *, revision: int = 1, available: int | None = None, **extra: Any
) -> Obj:
    """The ReplicaSet of an image, with so many pods, all or some of them available."""
    old = {**owner, "spec": {**owner["spec"], "template": template("web", image)}}
    made = new_replica_set(old, replicas, revision, bounds_of(owner))
    about = made["metadata"]
    about["annotations"] |= {
        key: str(extra[name]) for key, name in ((DESIRED_REPLICAS, "desired"), (MAX_REPLICAS, "most")) if name in extra
    }
    healthy = replicas if available is None else available
    return stored(
        made, created_at=NOW + revision, replicas=extra.get("actual", replicas), readyReplicas=healthy,
        availableReplicas=healthy, observedGeneration=1, terminatingReplicas=0,
    )  # fmt: skip


class World:
    """Executes decisions at once. Pods appear, become available and fail when the test requests it."""

    def __init__(self, owner: Obj, *sets: Obj) -> None:
        self.owner = owner
        self.sets: dict[str, Obj] = {each["metadata"]["name"]: each for each in sets}
        self.now = NOW
        self.created = len(sets)

    def step(self, *, old_pods_run: bool = False) -> DeploymentPlan:
        decided = plan(self.owner, list(self.sets.values()), old_pods_run=old_pods_run, now=self.now)
        for action in decided.actions:
            match action:
                case CreateReplicaSet(made):
                    self.created += 1
                    self.sets[made["metadata"]["name"]] = stored(made, created_at=NOW + 100 + self.created, replicas=0)
                case UpdateReplicaSet(changed, _):
                    self.sets[changed["metadata"]["name"]] = changed
                case DeleteReplicaSet(gone):
                    del self.sets[gone["metadata"]["name"]]
        about = self.owner["metadata"]
        if decided.revision:
            about = {**about, "annotations": {**(about.get("annotations") or {}), REVISION: decided.revision}}
        self.owner = {**self.owner, "metadata": about, "status": decided.status}
        return decided

    def change(self, **spec: Any) -> None:
        about = {**self.owner["metadata"], "generation": self.owner["metadata"]["generation"] + 1}
        self.owner = {**self.owner, "metadata": about, "spec": {**self.owner["spec"], **spec}}

    def roll(self, image: str) -> None:
        self.change(template=template("web", image))

    def report(self, name: str, *, available: int | None = None) -> None:
        """The ReplicaSet has the pods it wants; unavailable ones went first."""
        each = self.sets[name]
        size = each["spec"]["replicas"]
        known = each["status"].get("availableReplicas") or 0
        healthy = min(size, known if available is None else available)
        status = {
            "replicas": size, "readyReplicas": healthy, "availableReplicas": healthy, "observedGeneration": 1,
            "terminatingReplicas": 0,
        }  # fmt: skip
        self.sets[name] = {**each, "status": status}

    def settle(self) -> None:
        """All pods come and become available."""
        for name, each in list(self.sets.items()):
            self.report(name, available=each["spec"]["replicas"])

    def complete(self, limit: int = 60) -> int:
        """Settle and step until nothing happens; how many steps that took."""
        for number in range(limit):
            self.settle()
            before = self.owner.get("status")
            decided = self.step()
            if not decided.actions and decided.status == before:
                return number
        raise AssertionError("it does not come to an end")

    def sizes(self) -> dict[str, int]:
        """Image → replicas."""
        return {image(each): each["spec"]["replicas"] for each in self.sets.values()}

    @property
    def total(self) -> int:
        return sum(each["spec"]["replicas"] for each in self.sets.values())

    @property
    def available(self) -> int:
        return sum(each["status"].get("availableReplicas") or 0 for each in self.sets.values())

    def condition(self, kind: str) -> Obj | None:
        return next((c for c in self.owner["status"].get("conditions") or () if c["type"] == kind), None)

    @property
    def progress(self) -> tuple[str, str]:
        found = self.condition("Progressing")
        return (found["status"], found["reason"]) if found is not None else ("", "")


def image(replica_set: Obj) -> str:
    found: str = replica_set["spec"]["template"]["spec"]["containers"][0]["image"]
    return found
