"""Bodies of create requests, and the labels that store the runtime's state in the engine; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.node.runtime.docker import pause
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.model import (
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    Mount,
    Sandbox,
    SandboxSpec,
    Security,
    argv_of,
)

Body = dict[str, Any]

CLUSTER = "io.shoal.cluster"
NODE = "io.shoal.node"
KIND = "io.shoal.kind"
SANDBOX_ID = "io.shoal.sandbox"
KEPT = "io.shoal.kept"  # further state, as JSON
POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"

KIND_SANDBOX = "sandbox"
KIND_CONTAINER = "container"

_PERIOD_US = 100_000
_PROPAGATION = {"None": "rprivate", "HostToContainer": "rslave", "Bidirectional": "rshared"}
_HOSTNAME_LIMIT = 63
_ESCALATION = "no-new-privileges"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateContext:
    """What a request depends on besides its spec: the owner, the kind of engine, the seccomp profile."""

    config: DockerConfig
    podman: bool = False
    seccomp: str = ""  # the profile in the form that this engine expects


def owner_filter(config: DockerConfig) -> Body:
    """Selects the containers of a node."""
    return {"label": [f"{CLUSTER}={config.cluster}", f"{NODE}={config.node}"]}


def _labels(config: DockerConfig, kind: str, kept: Body) -> dict[str, str]:
    return {CLUSTER: config.cluster, NODE: config.node, KIND: kind, KEPT: orjson.dumps(kept).decode()}


def network_body(config: DockerConfig) -> Body:
    body: Body = {
        "Name": config.network_name, "Driver": "bridge", "CheckDuplicate": True, "Labels": {CLUSTER: config.cluster},
    }  # fmt: skip
    if config.subnet:
        body["IPAM"] = {"Driver": "default", "Config": [{"Subnet": config.subnet}]}
    return body


# sandboxes


def sandbox_name(spec: SandboxSpec, config: DockerConfig) -> str:
    """Unique for a sandbox, so that the engine refuses to create it twice."""
    words = (config.cluster, config.node, "pod", spec.namespace, spec.name, spec.pod_uid, str(spec.attempt))
    return _name(words)


def sandbox_body(spec: SandboxSpec, image: str, context: CreateContext) -> Body:
    config = context.config
    labels = _labels(config, KIND_SANDBOX, {"attempt": spec.attempt, "host": spec.host_network})
    labels |= {POD_UID: spec.pod_uid, POD_NAME: spec.name, POD_NAMESPACE: spec.namespace}
    host: Body = {
        "NetworkMode": "host" if spec.host_network else config.network_name,
        "IpcMode": "shareable",
        "CapDrop": ["ALL"],
        "SecurityOpt": [_ESCALATION],
        "ReadonlyRootfs": True,
        "RestartPolicy": {"Name": "no"},
        "Dns": list(spec.dns_servers),
        "DnsSearch": list(spec.dns_searches),
        "DnsOptions": list(spec.dns_options),
        "Sysctls": dict(spec.sysctls),
    }
    body: Body = {"Image": image, "Labels": labels, "HostConfig": host}
    if not config.pause_image:
        body["Entrypoint"] = [pause.PATH]
    if spec.hostname and not spec.host_network:
        body["Hostname"] = spec.hostname[:_HOSTNAME_LIMIT]
    if spec.ports and not spec.host_network:
        body["ExposedPorts"] = {f"{port.container_port}/{port.protocol.lower()}": {} for port in spec.ports}
        host["PortBindings"] = _port_bindings(spec)
    return body


def _port_bindings(spec: SandboxSpec) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for port in spec.ports:
        binding = {"HostIp": port.host_ip, "HostPort": str(port.host_port)}
        found.setdefault(f"{port.container_port}/{port.protocol.lower()}", []).append(binding)
    return found


# containers


def container_name(spec: ContainerSpec, sandbox: Sandbox, config: DockerConfig) -> str:
    words = (
        config.cluster,
        config.node,
        sandbox.namespace,
        sandbox.name,
        spec.name,
        sandbox.id[:12],
        str(spec.attempt),
    )
    return _name(words)


def container_body(spec: ContainerSpec, sandbox: Sandbox, context: CreateContext) -> Body:
    """The body of a create request; raises ``CreateFailure`` for an invalid spec."""
    argv = argv_of(spec)
    if not argv:
        raise CreateFailure("no command specified: neither the container nor its image has one")
    _check_user(spec)
    config, joined = context.config, f"container:{sandbox.id}"
    kept = {
        "attempt": spec.attempt, "image": spec.image_reference, "hash": spec.hash, "labels": dict(spec.labels),
        "stdin": spec.stdin, "once": spec.stdin_once,
    }  # fmt: skip
    labels = _labels(config, KIND_CONTAINER, kept)
    labels |= {POD_UID: sandbox.pod_uid, POD_NAME: sandbox.name, POD_NAMESPACE: sandbox.namespace}
    labels |= {CONTAINER_NAME: spec.name, SANDBOX_ID: sandbox.id}
    host: Body = {
        "NetworkMode": joined,
        "IpcMode": joined,
        "RestartPolicy": {"Name": "no"},
        "Mounts": [_mount(each) for each in spec.mounts],
        "LogConfig": _log_config(config),
        **resources_body(spec.resources),
        **_security(spec.security, context),
    }
    if context.podman:
        host["UTSMode"] = joined  # in Docker it comes with the network
    if spec.target:
        host["PidMode"] = f"container:{spec.target}"
    return {
        "Image": spec.image.id,
        "Entrypoint": list(argv),
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in dict(spec.env).items()],
        "Labels": labels,
        "HostConfig": host,
        "OpenStdin": spec.stdin,
        "StdinOnce": spec.stdin_once,
        "AttachStdin": spec.stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": spec.tty,
        "Healthcheck": {"Test": ["NONE"]},  # the agent probes
        **({"WorkingDir": spec.working_dir} if spec.working_dir else {}),
        **({"User": _user(spec.security)} if spec.security.user is not None else {}),
        **({"StopSignal": spec.stop_signal} if spec.stop_signal else {}),
    }


def _log_config(config: DockerConfig) -> Body:
    return {
        "Type": "json-file",
        "Config": {"max-size": str(config.log_bytes), "max-file": str(config.log_files)},
    }


def _mount(mount: Mount) -> Body:
    return {
        "Type": "bind", "Source": mount.host_path, "Target": mount.container_path, "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": _PROPAGATION.get(mount.propagation, "rprivate")},
    }  # fmt: skip


def resources_body(resources: ContainerResources) -> Body:
    """Requests and limits, for create and update requests."""
    body: Body = {}
    if resources.cpu_request_milli or resources.cpu_limit_milli:
        milli = resources.cpu_request_milli or resources.cpu_limit_milli
        body["CpuShares"] = max(2, milli * 1024 // 1000)
    if resources.cpu_limit_milli:
        body["CpuPeriod"] = _PERIOD_US
        body["CpuQuota"] = max(1000, resources.cpu_limit_milli * _PERIOD_US // 1000)
    if resources.memory_limit_bytes:
        body["Memory"] = body["MemorySwap"] = resources.memory_limit_bytes
    if resources.memory_request_bytes and resources.memory_request_bytes < resources.memory_limit_bytes:
        body["MemoryReservation"] = resources.memory_request_bytes
    return body


def _security(security: Security, context: CreateContext) -> Body:
    options: list[str] = []
    if security.allow_privilege_escalation is False and not security.privileged:
        options.append(_ESCALATION)
    if security.seccomp_profile == "Unconfined":
        options.append("seccomp=unconfined")
    elif context.seccomp:
        options.append(f"seccomp={context.seccomp}")
    groups: Iterable[int] = security.supplemental_groups
    if security.fs_group is not None:
        groups = (*groups, security.fs_group)
    return {
        "Privileged": security.privileged,
        "ReadonlyRootfs": security.read_only_root,
        "CapAdd": [_capability(each) for each in security.added_capabilities],
        "CapDrop": [_capability(each) for each in security.dropped_capabilities],
        "GroupAdd": [str(each) for each in dict.fromkeys(groups)],
        "SecurityOpt": options,
    }


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _user(security: Security) -> str:
    return str(security.user) if security.group is None else f"{security.user}:{security.group}"


def _check_user(spec: ContainerSpec) -> None:
    """With runAsNonRoot, the user must be known not to be root."""
    if not spec.security.run_as_non_root:
        return
    if spec.security.user is not None:
        if spec.security.user == 0:
            raise CreateFailure("container's runAsUser breaks non-root policy")
        return
    user = spec.image.user.partition(":")[0]
    if user in ("", "0", "root"):
        raise CreateFailure("container has runAsNonRoot and image will run as root")
    if not user.isdigit():
        raise CreateFailure(
            f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
        )


def _name(words: Iterable[str]) -> str:
    """A valid name for engines: other characters become dashes."""
    return "_".join("".join(each if each.isascii() and each.isalnum() else "-" for each in word) for word in words)
