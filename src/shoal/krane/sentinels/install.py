"""Objects shared by all sentinels of a cluster: their namespace, the custom kinds, and their RBAC rules.

Each agent process creates them once if they are missing, before it applies its first sentinel.
"""

from __future__ import annotations

import asyncio
from typing import Any

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, builtin
from shoal.crds.sentinel import GROUP, definitions
from shoal.errors import Forbidden, NotFound, ServiceUnavailable
from shoal.krane.labels import COMPONENT, KRANE, MANAGED_BY, NAMESPACE_SENTINEL
from shoal.krane.objects.writer import Writer
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj

log = get_logger("krane.sentinels")

ROLE = "shoal-sentinel"
AGENT_ROLE = "shoal-krane"
"""The ClusterRole of agents, and its binding."""
AGENT_GATEWAY_ROLE = "shoal-krane-sentinel"
"""The ClusterRole of agents for the sentinels' namespace, and the RoleBinding that grants it there."""
READ = ("get", "list", "watch")
NAMESPACED_RULES: tuple[Obj, ...] = (
    {"apiGroups": [GROUP], "resources": ["sentinelroutes", "sentinelpolicies"], "verbs": list(READ)},
    {
        "apiGroups": [GROUP],
        "resources": ["sentinelroutes/status", "sentinelpolicies/status"],
        "verbs": ["get", "patch"],
    },
    {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": list(READ)},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},  # its counters
)
"""What a sentinel may do in its namespace."""
CLUSTER_RULES: tuple[Obj, ...] = (
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": list(READ)},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
)
"""What a sentinel may do everywhere: its backends are in other namespaces, and its node says in which zone it is."""

_DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
_BINDINGS = builtin("clusterrolebindings", "rbac.authorization.k8s.io")
_LOOK_S, _LOOKS = 0.1, 100
_RBAC = "rbac.authorization.k8s.io"


_LABELS = {MANAGED_BY: KRANE, COMPONENT: "sentinel"}


def namespace() -> Obj:
    """Where the sentinels are."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_SENTINEL, "labels": _LABELS}}


def agent_binding(subjects: list[Obj], labels: Obj | None = None) -> Obj:
    """Grants agents their rights in the sentinels' namespace."""
    about: Obj = {"name": AGENT_GATEWAY_ROLE, "namespace": NAMESPACE_SENTINEL}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {**about, "labels": labels} if labels else about,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": AGENT_GATEWAY_ROLE},
        "subjects": subjects,
    }


def shared_objects() -> list[Obj]:
    """In the order in which they are made, the namespace first."""
    inside = {"name": ROLE, "namespace": NAMESPACE_SENTINEL, "labels": _LABELS}
    everywhere = {"name": ROLE, "labels": _LABELS}
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE_SENTINEL}"}

    def rbac(kind: str, about: Obj, **rest: Any) -> Obj:
        return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": about, **rest}

    def role(kind: str) -> Obj:
        return {"apiGroup": _RBAC, "kind": kind, "name": ROLE}

    return [
        namespace(),
        rbac("Role", inside, rules=list(NAMESPACED_RULES)),
        rbac("RoleBinding", inside, roleRef=role("Role"), subjects=[subject]),
        rbac("ClusterRole", everywhere, rules=list(CLUSTER_RULES)),
        rbac("ClusterRoleBinding", everywhere, roleRef=role("ClusterRole"), subjects=[subject]),
    ]


class Installation:
    """One per process; shared by the controllers that need it."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = asyncio.Lock()
        self._kinds_made = False
        self._objects_made = False

    async def kinds(self) -> None:
        """The custom kinds exist and are served when this returns."""
        async with self._lock:
            if not self._kinds_made:
                for definition in definitions():
                    await self._define(definition)
                self._kinds_made = True

    async def objects(self, owner: Owner) -> None:
        """Everything that sentinels share is there when this returns."""
        await self.kinds()
        async with self._lock:
            if not self._objects_made:
                writer = Writer(self._client, owner)
                place, *others = shared_objects()
                await writer.ensure(place)
                await self._restore_rights(writer)
                for want in others:
                    await writer.ensure(want)
                self._objects_made = True

    def forget(self) -> None:
        """Something that should be there was not found: look again before the next object."""
        self._kinds_made = self._objects_made = False

    async def _restore_rights(self, writer: Writer) -> None:
        """A user who deletes the namespace deletes the agent's RoleBinding with it. The agent may bind this one role
        again, to the subjects that have its ClusterRole."""
        try:
            everywhere = await self._client.of(_BINDINGS).get(AGENT_ROLE)
            await writer.ensure(agent_binding(everywhere.get("subjects") or [], _LABELS))
        except (NotFound, Forbidden) as error:  # rights of another shape, or of an older release
            log.debug("the agent's rights for gateways are left as they are", reason=str(error))

    async def _define(self, definition: Obj) -> None:
        name = definition["metadata"]["name"]
        writer = Writer(self._client, _NOBODY)
        live = await writer.ensure(_labelled(definition))
        for _ in range(_LOOKS):
            conditions = (live.get("status") or {}).get("conditions") or ()
            if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
                return
            await self._clock.sleep(_LOOK_S)
            live = await self._client.of(_DEFINITIONS).get(name)
        raise ServiceUnavailable(f"{name} is defined but not served by the cluster")


_NOBODY = Owner(fleet="", cluster="", region="", shard="")  # what all share belongs to no shard


def _labelled(definition: Obj) -> Obj:
    return {**definition, "metadata": {**definition["metadata"], "labels": {MANAGED_BY: KRANE}}}
