"""Makes sentinels, routes, policies and keys of the cluster equal to what is desired; implements ``Applier``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shoal.base.logs import get_logger
from shoal.client import Client, ResourceType, Scope, builtin
from shoal.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from shoal.krane import labels
from shoal.krane.deployments.rendering import NEWEST, Rendering, rendering_for, rendering_of
from shoal.krane.labels import NAMESPACE_SENTINEL
from shoal.krane.model import Live
from shoal.krane.objects.group import Group
from shoal.krane.objects.memory import Memory, Written
from shoal.krane.objects.writer import Writer, together
from shoal.krane.owner import Owner
from shoal.krane.protocol import version_of
from shoal.krane.sentinels.custom import TYPES, certificate_name, name_of, render_certificate, render_custom
from shoal.krane.sentinels.images import GatewaySettings, chosen_image, named_image
from shoal.krane.sentinels.install import Installation
from shoal.krane.sentinels.render import (
    SERVING_LABEL,
    check,
    entry_name,
    peers_name,
    render,
    render_candidate,
)
from shoal.krane.sentinels.serving import demands_label
from shoal.krane.sentinels.waves import GatewayWaits, ImageWaves, image_in, is_candidate
from shoal.krane.unsealing import Unseal
from shoal.kube.objects import Obj
from shoal.sync.keys import split_key
from shoal.wire.fleet.v1 import cluster_pb as pb

log = get_logger("krane.sentinels")

ROOT = builtin("deployments", "apps")
_PODS, _NAMESPACES = builtin("pods"), builtin("namespaces")
_CONFIG, SECRETS = builtin("configmaps"), builtin("secrets")
# In the order in which they are deleted.
PARTS = (
    ROOT, builtin("services"), builtin("poddisruptionbudgets", "policy"), _CONFIG, SECRETS, builtin("serviceaccounts"),
)  # fmt: skip
_SERVICE = "Service"
ROOTS: dict[str, ResourceType] = {"sentinel": ROOT, **TYPES}
"""The Kubernetes kind of each kind of key."""


class SentinelApplier:
    def __init__(
        self,
        client: Client,
        owner: Owner,
        memory: Memory,
        installation: Installation,
        open_secret: Unseal,
        *,
        settings: GatewaySettings | None = None,
    ) -> None:
        self._settings = settings or GatewaySettings()
        self._client = client
        self._writer = Writer(client, owner)
        self._owner = owner
        self._memory = memory
        self._installation = installation
        self._open_secret = open_secret
        self._addresses: dict[str, str] = {}  # of the Services, by key, as they were last seen
        self._waves = ImageWaves()
        self._asked: dict[str, str] = {}  # those that were asked for when a Service was made again

    async def apply(self, item: pb.Item) -> None:
        state = item.action.value if item.action is not None else None
        await self._installation.objects(self._owner)
        try:
            if isinstance(state, pb.SentinelState):
                written = await self._apply_sentinel(item, state)
            elif isinstance(state, pb.CustomState):
                written = await self._apply_custom(item, state)
            else:
                raise BadRequest(f"{item.key} does not hold the state of a sentinel, route, policy or key set")
        except (NotFound, Forbidden):
            self._installation.forget()  # the namespace, with the rights in it, or the kinds were removed
            raise
        self._memory.remember(item.key, written)

    async def delete(self, key: str, namespace: str, name: str) -> None:
        self._forget(key)
        for kind, found in await self._objects(key, name):
            await self._writer.remove(kind, NAMESPACE_SENTINEL, found)

    async def release(self, key: str, namespace: str, name: str) -> None:
        self._forget(key)
        for kind, found in reversed(await self._objects(key, name)):
            await self._writer.release(kind, NAMESPACE_SENTINEL, found)

    def _forget(self, key: str) -> None:
        self._memory.forget(key)
        self._addresses.pop(key, None)
        self._asked.pop(key, None)

    async def live(self) -> dict[str, Live]:
        lists = await together({kind: self._writer.list(ROOTS[kind], self._scope(kind)) for kind in ROOTS})
        return {
            key: Live(obj["metadata"]["namespace"], obj["metadata"]["name"], labels.live_version(obj))
            for objects in lists.values()
            for obj in objects
            if (key := labels.key_of(obj)) is not None and not is_candidate(obj)
        }

    def _scope(self, kind: str, id_: str = "") -> Scope:
        return Scope(namespace=NAMESPACE_SENTINEL, label_selector=labels.selector(self._owner, kind, id_))

    async def _apply_sentinel(self, item: pb.Item, state: pb.SentinelState) -> list[Written]:
        key = item.key
        image = await chosen_image(self._client, named_image(state.image), self._settings)
        check(state)
        entry = self._open_secret(state.entry) if state.entry is not None else None
        settings = replace(self._settings, image=image)
        rendered = render(state, self._owner, settings, entry)
        beside = await self._candidate(state)
        group = await self._group(item, (*rendered.before, rendered.root, *rendered.after, *beside))
        root = group.live(ROOT.kind, state.name)
        before = image_in(root)
        blocker = self._blocker(key, state, image, before)
        settings = replace(settings, image=before if blocker else image)
        settings = replace(settings, rendering=await self._rendering(root, settings.image))
        if state.candidate is not None and beside:
            beside = await self._candidate(state, group.live(ROOT.kind, beside[0]["metadata"]["name"]) or root)
        live = group.live(_SERVICE)
        labelled = live is None or demands_label(live) or await self._label_pods(live)
        rendered = render(state, self._owner, settings, entry, labelled=labelled)
        known = self._addresses.get(key, "")
        if group.live(_SERVICE) is None and known:
            self._asked[key] = known
        after = (*rendered.after, *beside)
        surplus = await self._surplus(key, state.name, {each["metadata"]["name"] for each in beside})
        try:
            written = await group.write(
                rendered.before, rendered.root, self._at_address(key, after), surplus=surplus
            )  # fmt: skip
        except Invalid:
            if self._asked.pop(key, "") == "":
                raise
            written = await group.write(
                rendered.before, rendered.root, after, surplus=surplus
            )  # another Service has it by now
        service = group.live(_SERVICE) or {}
        self._addresses[key] = (service.get("spec") or {}).get("clusterIP") or ""
        if blocker:
            self._memory.remember(key, written)
            raise GatewayWaits(f"gets the image {image} when gateway {blocker} runs its own in all replicas")
        return written

    async def _candidate(self, state: pb.SentinelState, live: Obj | None = None) -> tuple[Obj, ...]:
        """The Deployment of the version that is being rolled out, if pods of it are wanted. ``live`` is it as it is,
        or else the stable one."""
        candidate = state.candidate
        if candidate is None or not candidate.replicas:
            return ()
        image = await chosen_image(self._client, named_image(candidate.image), self._settings)
        settings = replace(self._settings, image=image, rendering=await self._rendering(live, image))
        return (render_candidate(state, candidate, self._owner, settings),)

    async def _surplus(self, key: str, name: str, kept: Collection[str] = ()) -> list[tuple[ResourceType, str]]:
        """The Deployments of versions that are not rolled out any more."""
        names = self._memory.names(key, ROOT.kind)
        if names is None or names - {name, *kept}:
            found = await self._writer.list(ROOT, self._scope(*split_key(key)))
            names = {each["metadata"]["name"] for each in found if is_candidate(each)}
        # a user's copy has the same labels, and another name
        return [(ROOT, each) for each in sorted(names - {*kept}) if each.startswith(f"{name}-")]

    def _blocker(self, key: str, state: pb.SentinelState, image: str, before: str) -> str:
        """The gateway that this one waits for before it gets the agent's new image."""
        if not before or before == image or named_image(state.image) or state.candidate is not None:
            return ""  # or the control plane decides
        seen = self._memory.caches.get(ROOT.kind)
        if seen is None or not seen.synced.is_set():
            return "(not listed yet)"
        blocker = self._waves.blocker(key, seen)
        if not blocker:
            self._waves.begins(key, image)
        return blocker

    async def _rendering(self, live: Obj | None, image: str) -> Rendering:
        """By which rules: those of what runs, so that an agent's upgrade restarts nothing; the newest ones with another
        image."""
        if live is not None and image_in(live) == image:
            return rendering_of(live)
        return rendering_for(NEWEST, await self._writer.get(_NAMESPACES, "", NAMESPACE_SENTINEL))

    async def _label_pods(self, service: Obj) -> bool:
        """Pods of an earlier version lack the label that their Service is about to demand. False where the agent may
        not give it to them: then the Service leads to all of them, as before."""
        pods = self._client.of(_PODS)
        selector = ",".join(f"{name}={text}" for name, text in service["spec"]["selector"].items())
        try:
            for pod in (await pods.list(Scope(namespace=NAMESPACE_SENTINEL, label_selector=selector))).items:
                about = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
                wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": {**about, "labels": SERVING_LABEL}}
                await pods.apply(wanted, field_manager=labels.FIELD_MANAGER_KRANE, force=True)
        except (Forbidden, NotFound, Conflict) as error:
            log.warning("gateways' pods cannot be labelled: a silent one stays in its Service", reason=str(error))
            return False
        return True

    def _at_address(self, key: str, objects: tuple[Obj, ...]) -> tuple[Obj, ...]:
        """The Service goes with its Deployment when a user deletes that. Made again, it asks for the address it had:
        users and gateways of other regions know it."""
        address = self._asked.get(key)
        if not address:
            return objects
        return tuple(
            {**obj, "spec": {**obj["spec"], "clusterIP": address}} if obj["kind"] == _SERVICE else obj
            for obj in objects
        )

    async def _group(self, item: pb.Item, wants: tuple[Obj, ...]) -> Group:
        key = (item.key, version_of(item))
        return await Group.read(self._writer, self._memory, key, wants, correlation=item.correlation)

    async def _apply_custom(self, item: pb.Item, state: pb.CustomState) -> list[Written]:
        key = item.key
        want = render_custom(key, state, self._owner)
        if state.tls is not None:
            secret = render_certificate(key, state, self._owner, self._open_secret(state.tls))
            group = await self._group(item, (secret, want))
            return await group.write((secret,), want, ())
        live = self._memory.recall(key, want) or await self._writer.read(want)
        made = await self._writer.write(want, live, version_of(item), correlation=item.correlation, every_version=True)
        if want["kind"] == "SentinelRoute" and not self._memory.has_none(key, SECRETS.kind):
            await self._writer.remove(SECRETS, NAMESPACE_SENTINEL, certificate_name(want["metadata"]["name"]))
        return [Written.of(want, made)]

    async def _objects(self, key: str, name: str) -> list[tuple[ResourceType, str]]:
        """Kind and name of everything that belongs to a key, in the order of deletion."""
        kind, id_ = split_key(key)
        if kind == "keys":
            name = name_of(key, name)
        if not name:
            found = [
                each for each in await self._writer.list(ROOTS[kind], self._scope(kind, id_)) if not is_candidate(each)
            ]
            found = found or (await self._writer.list(PARTS[1], self._scope(kind, id_)) if kind == "sentinel" else [])
            if not found:
                return []
            name = found[0]["metadata"]["name"]
        if kind == "route":
            return [(ROOTS[kind], name), (SECRETS, certificate_name(name))]
        if kind != "sentinel":
            return [(ROOTS[kind], name)]
        names = {_CONFIG: peers_name(name), SECRETS: entry_name(name)}
        return [*await self._surplus(key, name), *((part, names.get(part, name)) for part in PARTS)]
