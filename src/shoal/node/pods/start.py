"""Starts containers: gets the image, environment and mounts, creates and starts the container, runs its hook."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.client import TransportError
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.node import env
from shoal.node.containers import ContainerRole, find
from shoal.node.errors import ConfigFault, HookFault
from shoal.node.images import credentials_of
from shoal.node.pods.deps import PodWorkerDeps
from shoal.node.pods.model import StartContainer
from shoal.node.pods.spec import container_spec, hosts_file
from shoal.node.probes.handlers import Target
from shoal.node.references import ObjectReference
from shoal.node.runtime.model import (
    Container,
    CreateFailure,
    Mount,
    RuntimeFailure,
    Sandbox,
    StartFailure,
)
from shoal.node.volumes.service import Prepared

_HOSTS = "/etc/hosts"


@dataclass(frozen=True, slots=True)
class Started:
    """A started container and its part of the pod's spec."""

    container: Container
    spec: Obj


class Starter:
    """Starts the containers of one pod."""

    def __init__(self, deps: PodWorkerDeps) -> None:
        self._deps = deps

    def environment_sources(self, pod: Obj, sandbox: Sandbox | None) -> env.EnvironmentSources:
        """Sources of a pod's environment and volumes, except config maps and secrets."""
        deps = self._deps
        links = pod["spec"].get("enableServiceLinks") is not False
        services = env.linked_services(deps.services(), pod["metadata"]["namespace"], all_links=links)
        return env.EnvironmentSources(
            services=services,
            pod_addresses=sandbox.addresses if sandbox is not None else (),
            host_addresses=deps.host_addresses,
            allocatable=deps.volumes.allocatable,
        )

    async def start(self, pod: Obj, sandbox: Sandbox, start: StartContainer, prepared: dict[str, Prepared]) -> Started:
        """Create and start one container. Raises ``NoImage``, ``ConfigFault``, ``CreateFailure``, ``StartFailure`` or
        ``HookFault``, after recording an event for it."""
        deps, name = self._deps, start.name
        found = find(pod, name)
        if found is None:
            raise ConfigFault(f"the pod no longer has a container {name}")
        spec = found[0]
        image = await deps.images.ensure(pod, spec, credentials_of(await self._pull_secrets(pod)))
        try:
            variables = await self._environment(pod, spec, sandbox)
            mounts = deps.volumes.mounts(pod, spec, prepared, dict(variables), start.attempt)
            mounts += self._hosts(pod, spec, sandbox)
            made = container_spec(pod, spec, start, image, variables, mounts)
            container = await deps.runtime.create(sandbox.id, made)
        except (ConfigFault, CreateFailure) as fault:
            deps.events.warning(pod, "Failed", f"Error: {fault}", container=name)
            raise
        deps.events.normal(pod, "Created", "Container created", container=name)
        try:
            container = await deps.runtime.start(container.id)
        except StartFailure as fault:
            deps.events.warning(pod, "Failed", f"Error: {fault}", container=name)
            raise
        deps.events.normal(pod, "Started", "Container started", container=name)
        if start.role in (ContainerRole.MAIN, ContainerRole.SIDECAR):
            await self._post_start(pod, spec, container, sandbox)
        return Started(container, spec)

    async def _pull_secrets(self, pod: Obj) -> list[Obj]:
        namespace, found, missing = pod["metadata"]["namespace"], [], []
        for each in pod["spec"].get("imagePullSecrets") or ():
            name = each.get("name", "")
            try:
                secret = await self._deps.references.get(ObjectReference("secrets", namespace, name))
            except (ApiError, TransportError):
                secret = None
            if secret is None:
                missing.append(name)
            else:
                found.append(secret)
        if missing:
            self._deps.events.warning(
                pod, "FailedToRetrieveImagePullSecret",
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); "
                "attempting to pull the image may not succeed.",
            )  # fmt: skip
        return found

    async def _environment(self, pod: Obj, spec: Obj, sandbox: Sandbox) -> tuple[tuple[str, str], ...]:
        namespace = pod["metadata"]["namespace"]
        config_maps: dict[str, Obj | None] = {}
        secrets: dict[str, Obj | None] = {}
        try:
            for each in env.references(spec):
                obj = await self._deps.references.get(ObjectReference(each.resource, namespace, each.name))
                (config_maps if each.resource == "configmaps" else secrets)[each.name] = obj
        except (ApiError, TransportError) as error:
            raise ConfigFault(str(error)) from error
        sources = replace(self.environment_sources(pod, sandbox), config_maps=config_maps, secrets=secrets)
        own = (("HOSTNAME", pod["spec"].get("hostname") or pod["metadata"]["name"]),)
        return own + env.environment(pod, spec, sources)

    def _hosts(self, pod: Obj, spec: Obj, sandbox: Sandbox) -> tuple[Mount, ...]:
        if pod["spec"].get("hostNetwork"):
            return ()
        if any(each["mountPath"] == _HOSTS for each in spec.get("volumeMounts") or ()):
            return ()
        path = self._deps.volumes.folder(pod["metadata"]["uid"]) / "etc-hosts"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(hosts_file(pod, sandbox.addresses))
        return (Mount(host_path=str(path), container_path=_HOSTS),)

    async def _post_start(self, pod: Obj, spec: Obj, container: Container, sandbox: Sandbox) -> None:
        hook = (spec.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        try:
            await run_hook(self._deps, hook, spec, container, sandbox)
        except HookFault as fault:
            self._deps.events.warning(pod, "FailedPostStartHook", "PostStartHook failed", container=spec["name"])
            grace_s = float(pod["spec"].get("terminationGracePeriodSeconds") or 0)
            await self._deps.runtime.stop(container.id, grace_s=grace_s)
            raise fault


async def run_hook(deps: PodWorkerDeps, hook: Obj, spec: Obj, container: Container, sandbox: Sandbox) -> None:
    """Run a lifecycle hook; raises ``HookFault`` if it fails."""
    target = Target(container=container, spec=spec, address=next(iter(sandbox.addresses), ""))
    try:
        if hook.get("exec"):
            code, output = await deps.handlers.run(tuple(hook["exec"].get("command") or ()), target)
            if code:
                raise HookFault(f"command exited with {code}: {output.strip()}")
        elif hook.get("httpGet"):
            status, _ = await deps.handlers.fetch(hook["httpGet"], target, agent="kube-lifecycle")
            if status >= 400:
                raise HookFault(f"the hook's HTTP request returned status {status}")
        elif hook.get("sleep"):
            await deps.clock.sleep(float(hook["sleep"].get("seconds") or 0))
    except (OSError, ValueError, EOFError, RuntimeFailure) as error:
        raise HookFault(str(error)) from error
