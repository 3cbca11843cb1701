"""Makes the cluster's objects of a deployment equal to its desired state; implements ``Applier``.

    read all ─▶ refuse (not ours, newer) ─▶ namespace ─▶ what pods need ─▶ Deployment ─▶ the rest ─▶ remove surplus

Objects that are as they should be are not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from shoal.client import Client, ResourceType, Scope, builtin
from shoal.errors import BadRequest, Forbidden, NotFound
from shoal.krane import labels
from shoal.krane.deployments.adopting import AUTOSCALERS, rendered_adopted
from shoal.krane.deployments.check import check
from shoal.krane.deployments.namespaces import Namespaces
from shoal.krane.deployments.registries import docker_config, registries_name
from shoal.krane.deployments.render import is_scaled, pod_labels, render, replicas_between
from shoal.krane.deployments.rendering import Rendering, rendering_for, rendering_of
from shoal.krane.deployments.running_jobs import CheckJobs
from shoal.krane.model import Live
from shoal.krane.objects.group import Group
from shoal.krane.objects.memory import Memory
from shoal.krane.objects.writer import Writer, together
from shoal.krane.owner import Owner
from shoal.krane.protocol import version_of
from shoal.krane.unsealing import Unseal, values_of
from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.sync.keys import NAMESPACED, split_key
from shoal.wire.fleet.v1 import cluster_pb as pb

KIND = "deployment"
ROOT = builtin("deployments", "apps")
SERVICES = builtin("services")
# In the order in which they are deleted. All have the name of the Deployment, but there may be a second Secret.
PARTS = (
    ROOT,
    SERVICES,
    builtin("horizontalpodautoscalers", "autoscaling"),
    builtin("poddisruptionbudgets", "policy"),
    builtin("networkpolicies", "networking.k8s.io"),
    builtin("secrets"),
    builtin("serviceaccounts"),
)
_SECRETS = builtin("secrets")
_NAMESPACES = builtin("namespaces")
_BUDGETS = builtin("poddisruptionbudgets", "policy")
# Those that ``live`` looks for: a deployment of which anything is there has one of these.
_FOUND_BY = (builtin("serviceaccounts"), SERVICES, ROOT)


def scopes_of(namespaces: Sequence[str], selector: str) -> list[Scope]:
    """These namespaces, or the whole cluster."""
    return [Scope(namespace=name, label_selector=selector) for name in namespaces or ("",)]


def _parts(name: str) -> list[tuple[ResourceType, str]]:
    """Everything that a deployment may have, with its names."""
    return [(kind, each) for kind in PARTS for each in (name, *((registries_name(name),) if kind == _SECRETS else ()))]


class DeploymentApplier:
    def __init__(
        self, client: Client, owner: Owner, memory: Memory, open_secret: Unseal, jobs: CheckJobs, *,
        namespaces: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``namespaces`` are the only ones that the agent may use; none: all."""
        self._allowed = tuple(namespaces)
        self._writer = Writer(client, owner)
        self._namespaces = Namespaces(client, owner)
        self._owner = owner
        self._memory = memory
        self._open_secret = open_secret
        self._jobs = jobs

    async def apply(self, item: pb.Item) -> None:
        state = item.action.value if item.action is not None else None
        if not isinstance(state, pb.DeploymentState):
            raise BadRequest(f"{item.key} does not hold the state of a deployment")
        self._check_namespace(state.namespace)
        if state.adopted is not None:
            await self._apply_adopted(item, state, state.adopted)
            return
        values = values_of(state.secrets, self._open_secret)
        check(state, values)
        registries = docker_config([self._open_secret(each) for each in state.registries])
        budget = not state.pod_labels or not await self._has_budget(state)
        rendered = render(state, self._owner, values, registries=registries, budget=budget)
        wants = rendered.objects[1:]
        strict = state.drift != pb.Drift.REPORT
        group = await Group.read(
            self._writer, self._memory, (item.key, version_of(item)), wants,
            correlation=item.correlation, strict=strict, taken_from=state.taken_from,
        )  # fmt: skip
        try:
            await self._writer.ensure_namespace(rendered.namespace)
            how = await self._rendering(state, group.live(ROOT.kind))
            rendered = render(state, self._owner, values, how, registries=registries, budget=budget)
            written = await group.write(
                rendered.before, rendered.root, rendered.after,
                between=replicas_between(state), surplus=self._surplus(item.key, state.name, wants),
            )  # fmt: skip
        except NotFound:
            self._writer.forget_namespace(state.namespace)
            raise
        self._memory.remember(item.key, written)
        await self._jobs.apply(item.key, state, how)

    async def _apply_adopted(self, item: pb.Item, state: pb.DeploymentState, adopted: pb.Adopted) -> None:
        check(state, {})
        rendered = await rendered_adopted(self._writer, self._owner, state, adopted)
        wants = rendered.objects[1:]
        group = await Group.read(
            self._writer, self._memory, (item.key, version_of(item)), wants,
            correlation=item.correlation, taken_from=state.taken_from,
        )  # fmt: skip
        surplus = self._surplus(item.key, state.name, wants)
        if adopted.autoscaler and not is_scaled(state):
            surplus.append((AUTOSCALERS, adopted.autoscaler))
        written = await group.write(
            rendered.before, rendered.root, rendered.after, between=replicas_between(state), surplus=surplus
        )
        self._memory.remember(item.key, written)

    async def _has_budget(self, state: pb.DeploymentState) -> bool:
        """Whether a budget of a user has these pods already: with two no pod can be evicted."""
        ours = pod_labels(state, {})
        for each in await self._writer.list(_BUDGETS, Scope(namespace=state.namespace)):
            selector = (each.get("spec") or {}).get("selector")
            if selector and not labels.is_of_krane(each) and from_object(selector).matches(ours):
                return True
        return False

    def _check_namespace(self, name: str) -> None:
        if self._allowed and name not in self._allowed:
            raise BadRequest(
                f"namespace {name} is not one of those that the agent may use ({', '.join(self._allowed)}): set "
                "spec.namespace of the environment to one of them, or give the cluster more with shoal cluster join "
                "--namespaces"
            )

    async def _rendering(self, state: pb.DeploymentState, live: Obj | None) -> Rendering:
        """By which rules: those of what runs, else those of the revision."""
        if live is not None:
            return rendering_of(live)
        if state.render <= 1:
            return rendering_for(state.render, None)
        try:
            namespace = await self._writer.get(_NAMESPACES, "", state.namespace)
        except Forbidden:  # an agent with some namespaces; the cluster says what it refuses
            namespace = None
        return rendering_for(state.render, namespace)

    def _surplus(self, key: str, name: str, wants: tuple[Obj, ...]) -> list[tuple[ResourceType, str]]:
        wanted = {(want["kind"], want["metadata"]["name"]) for want in wants}
        return [
            (kind, each)
            for kind, each in _parts(name)
            if (kind.kind, each) not in wanted and not self._memory.has_none(key, kind.kind, each)
        ]

    async def delete(self, key: str, namespace: str, name: str) -> None:
        kind_of_key, id_ = split_key(key)
        if kind_of_key == NAMESPACED:
            if self._allowed:
                return  # it was there before us
            await self._namespaces.delete(name, environment=id_)
            self._writer.forget_namespace(name)
            return
        self._memory.forget(key)
        await self._jobs.delete(key)
        for place in await self._places(key, namespace, name):
            roots = [await self._writer.remove(kind, place[0], each) for kind, each in _parts(place[1])]
            if roots[0] is None or labels.is_adopted(roots[0]):
                for kind, each in await self._named_otherwise(key, place):
                    await self._writer.remove(kind, place[0], each)

    async def release(self, key: str, namespace: str, name: str) -> None:
        if split_key(key)[0] == NAMESPACED:
            return  # the namespace stays
        self._memory.forget(key)
        await self._jobs.delete(key)
        for place in await self._places(key, namespace, name):
            otherwise = await self._named_otherwise(key, place)
            if any(kind == ROOT for kind, _ in otherwise):  # adopted: only gateways use the Service beside it
                await self._writer.remove(SERVICES, *place)
            # the Deployment last: until then the key is found again
            parts = [*otherwise, *reversed(_parts(place[1]))]
            for kind, each in sorted(parts, key=lambda part: part[0] == ROOT):
                await self._writer.release(kind, place[0], each)

    async def _named_otherwise(self, key: str, place: tuple[str, str]) -> list[tuple[ResourceType, str]]:
        """Objects of a key that do not have the name of its revision: an adopted Deployment and its autoscaler."""
        scope = Scope(namespace=place[0], label_selector=labels.selector(self._owner, *split_key(key)))
        return [
            (kind, obj["metadata"]["name"])
            for kind in reversed(PARTS)
            for obj in await self._writer.list(kind, scope)
            if (kind, obj["metadata"]["name"]) not in _parts(place[1])
        ]

    async def live(self) -> dict[str, Live]:
        scopes = scopes_of(self._allowed, labels.selector(self._owner, KIND))
        found: dict[str, Live] = {}
        for kind, scope in product(_FOUND_BY, scopes):  # one after the other: a list is large, and little is kept
            for obj in await self._writer.list(kind, scope):
                key = labels.key_of(obj)
                if key is not None:
                    about = obj["metadata"]
                    found[key] = Live(about["namespace"], about["name"], labels.live_version(obj))
        return found

    async def _places(self, key: str, namespace: str, name: str) -> list[tuple[str, str]]:
        """Namespace and name of the key's objects: as given, else as their labels say."""
        if namespace and name:
            return [(namespace, name)]
        wanted = (namespace,) if namespace else self._allowed
        scopes = scopes_of(wanted, labels.selector(self._owner, *split_key(key)))
        lists = await together(
            {
                f"{kind.plural}/{scope.namespace}": self._writer.list(kind, scope)
                for kind, scope in product(_FOUND_BY, scopes)
            }
        )
        return sorted({(o["metadata"]["namespace"], o["metadata"]["name"]) for objs in lists.values() for o in objs})
