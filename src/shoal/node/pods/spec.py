"""Converts a pod's containers to specs for the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.node.env import expand
from shoal.node.errors import ConfigFault
from shoal.node.pods.model import StartContainer, qualified
from shoal.node.pods.restarts import CRASHES_LABEL, hash_of
from shoal.node.runtime.model import (
    ContainerResources,
    ContainerSpec,
    Image,
    MemoryVolume,
    Mount,
    PortMapping,
    SandboxSpec,
    Security,
)
from shoal.node.volumes.service import volume_folder


def sandbox_spec(pod: Obj, attempt: int, directory: str, *, dns_servers: tuple[str, ...], domain: str) -> SandboxSpec:
    """The sandbox that a pod's containers share."""
    about, spec = pod["metadata"], pod["spec"]
    servers, searches, options = _dns(about["namespace"], spec, dns_servers, domain)
    security = spec.get("securityContext") or {}
    return SandboxSpec(
        pod_uid=about["uid"],
        namespace=about["namespace"],
        name=about["name"],
        attempt=attempt,
        hostname=hostname_of(pod),
        host_network=bool(spec.get("hostNetwork")),
        host_pid=bool(spec.get("hostPID")),
        host_ipc=bool(spec.get("hostIPC")),
        ports=_ports(spec),
        directory=directory,
        dns_servers=servers,
        dns_searches=searches,
        dns_options=options,
        sysctls={each["name"]: each["value"] for each in security.get("sysctls") or ()},
        memory_volumes=_memory_volumes(spec, security.get("fsGroup"), directory),
        labels=dict(about.get("labels") or {}),
        annotations=dict(about.get("annotations") or {}),
    )


def _memory_volumes(spec: Obj, group: int | None, directory: str) -> tuple[MemoryVolume, ...]:
    found = []
    for volume in spec.get("volumes") or ():
        empty = volume.get("emptyDir") or {}
        if empty.get("medium") == "Memory":
            limit = empty.get("sizeLimit")
            size = quantity.parse(str(limit)).value() if limit is not None else 0
            path = volume_folder(Path(directory), volume["name"])
            found.append(MemoryVolume(path=str(path), size_bytes=size, group=group))
    return tuple(found)


def hostname_of(pod: Obj) -> str:
    found = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return str(found)[:63].rstrip("-.")


def _ports(spec: Obj) -> tuple[PortMapping, ...]:
    found = []
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for port in container.get("ports") or ():
            if port.get("hostPort") and not spec.get("hostNetwork"):
                mapping = PortMapping(
                    container_port=port["containerPort"], host_port=port["hostPort"],
                    protocol=port.get("protocol") or "TCP", host_ip=port.get("hostIP") or "",
                )  # fmt: skip
                found.append(mapping)
    return tuple(found)


def _dns(
    namespace: str, spec: Obj, servers: tuple[str, ...], domain: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    if policy == "None" or policy == "Default" or (policy == "ClusterFirst" and spec.get("hostNetwork")):
        servers = ()
    elif servers:
        searches = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain)
        options = ("ndots:5",)
    config = spec.get("dnsConfig") or {}
    servers += tuple(config.get("nameservers") or ())
    searches += tuple(config.get("searches") or ())
    for each in config.get("options") or ():
        value = each.get("value")
        options += (each["name"] if value is None else f"{each['name']}:{value}",)
    return servers, searches, options


def container_spec(
    pod: Obj,
    container: Obj,
    start: StartContainer,
    image: Image,
    env: tuple[tuple[str, str], ...],
    mounts: tuple[Mount, ...],
) -> ContainerSpec:
    """The spec of one container for the runtime."""
    values = dict(env)

    def expanded(words: list[str] | None) -> tuple[str, ...]:
        return tuple(expand(word, values.get) for word in words or ())

    lifecycle = container.get("lifecycle") or {}
    return ContainerSpec(
        name=container["name"],
        attempt=start.attempt,
        image=image,
        image_reference=container.get("image") or "",
        command=expanded(container.get("command")),
        args=expanded(container.get("args")),
        env=env,
        working_dir=container.get("workingDir") or "",
        mounts=mounts,
        resources=resources_of(container),
        security=security_of(pod, container, image),
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        stop_signal=lifecycle.get("stopSignal") or "",
        ports=tuple(each["containerPort"] for each in container.get("ports") or ()),
        target=container.get("targetContainerName") or "",
        hash=hash_of(container),
        labels={CRASHES_LABEL: str(start.crashes)},
    )


def resources_of(container: Obj) -> ContainerResources:
    found = container.get("resources") or {}
    limits, requests = found.get("limits") or {}, found.get("requests") or {}

    def amount(values: Mapping[str, str], name: str, *, milli: bool = False) -> int:
        text = values.get(name)
        if text is None:
            return 0
        parsed = quantity.parse(str(text))
        return parsed.milli() if milli else parsed.value()

    return ContainerResources(
        cpu_request_milli=amount(requests, "cpu", milli=True),
        cpu_limit_milli=amount(limits, "cpu", milli=True),
        memory_request_bytes=amount(requests, "memory"),
        memory_limit_bytes=amount(limits, "memory"),
        ephemeral_limit_bytes=amount(limits, "ephemeral-storage"),
    )


def security_of(pod: Obj, container: Obj, image: Image) -> Security:
    """The container's security settings, which override the pod's. Raises ConfigFault if its user is not allowed."""
    of_pod, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    merged = {**of_pod, **{key: value for key, value in own.items() if value is not None}}
    capabilities = own.get("capabilities") or {}
    profile = merged.get("seccompProfile") or {}
    user = merged.get("runAsUser")
    if merged.get("runAsNonRoot"):
        _refuse_root(pod, container, user, image.user)
    return Security(
        user=user,
        group=merged.get("runAsGroup"),
        supplemental_groups=tuple(of_pod.get("supplementalGroups") or ()),
        fs_group=of_pod.get("fsGroup"),
        run_as_non_root=bool(merged.get("runAsNonRoot")),
        privileged=bool(own.get("privileged")),
        read_only_root=bool(own.get("readOnlyRootFilesystem")),
        allow_privilege_escalation=own.get("allowPrivilegeEscalation"),
        added_capabilities=tuple(capabilities.get("add") or ()),
        dropped_capabilities=tuple(capabilities.get("drop") or ()),
        seccomp_profile=profile.get("localhostProfile") or profile.get("type") or "",
    )


def _refuse_root(pod: Obj, container: Obj, user: int | None, image_user: str) -> None:
    where = f'(pod: "{qualified(pod)}", container: {container["name"]})'
    if user == 0:
        raise ConfigFault(f"container's runAsUser breaks non-root policy {where}")
    name = image_user.partition(":")[0]
    if user is None and name in ("0", "root"):
        raise ConfigFault(f"container has runAsNonRoot and image will run as root {where}")
    if user is None and name and not name.isdigit():
        text = f"container has runAsNonRoot and image has non-numeric user ({name})"
        raise ConfigFault(f"{text}, cannot verify user is non-root {where}")


def hosts_file(pod: Obj, addresses: tuple[str, ...]) -> str:
    """The pod's ``/etc/hosts``."""
    spec, about = pod["spec"], pod["metadata"]
    lines = [
        "# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet", "fe00::0\tip6-mcastprefix", "fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters",
    ]  # fmt: skip
    name = hostname_of(pod)
    subdomain = spec.get("subdomain")
    full = f"{name}.{subdomain}.{about['namespace']}.svc.cluster.local\t" if subdomain else ""
    lines += [f"{address}\t{full}{name}" for address in addresses]
    aliases = spec.get("hostAliases") or ()
    if aliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join((each["ip"], *(each.get("hostnames") or ()))) for each in aliases]
    return "\n".join(lines) + "\n"
