"""Converts responses of the engine to images, sandboxes, containers and statistics; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.node.runtime.docker import bodies
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.frames import instant
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerStats,
    ExitReason,
    Image,
    RuntimeInfo,
    Sandbox,
)

Answer = Mapping[str, Any]

_PHASES = {
    "created": ContainerPhase.CREATED,
    "configured": ContainerPhase.CREATED,
    "initialized": ContainerPhase.CREATED,
    "running": ContainerPhase.RUNNING,
    "paused": ContainerPhase.RUNNING,
    "restarting": ContainerPhase.RUNNING,
    "stopping": ContainerPhase.RUNNING,
    "exited": ContainerPhase.EXITED,
    "stopped": ContainerPhase.EXITED,
    "dead": ContainerPhase.EXITED,
    "removing": ContainerPhase.EXITED,
}
_START_CODES = (127, 128)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container or sandbox in the engine, at the time of its inspection."""

    view: Container | Sandbox
    state: str  # as the engine calls it
    pid: int
    terminal: bool = False
    stdin: bool = False
    stdin_once: bool = False  # from the labels, because podman does not report it
    stop_signal: str = ""
    host_network: bool = False

    @property
    def phase(self) -> ContainerPhase:
        return _PHASES.get(self.state, ContainerPhase.UNKNOWN)


def image_of(answer: Answer) -> Image:
    config = answer.get("Config") or {}
    env = (entry.partition("=") for entry in config.get("Env") or ())
    return Image(
        id=answer["Id"],
        names=(*(answer.get("RepoTags") or ()), *(answer.get("RepoDigests") or ())),
        size_bytes=int(answer.get("Size") or 0),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        env=tuple((name, value) for name, _, value in env),
        working_dir=config.get("WorkingDir") or "",
        user=config.get("User") or "",
    )


def found_of(answer: Answer, config: DockerConfig) -> Found | None:
    """A sandbox or container of this node; None for others."""
    labels = (answer.get("Config") or {}).get("Labels") or {}
    if labels.get(bodies.CLUSTER) != config.cluster or labels.get(bodies.NODE) != config.node:
        return None
    try:
        kept = orjson.loads(labels.get(bodies.KEPT) or b"{}")
    except orjson.JSONDecodeError:
        kept = {}
    state, own = answer.get("State") or {}, answer.get("Config") or {}
    match labels.get(bodies.KIND):
        case bodies.KIND_SANDBOX:
            view: Container | Sandbox = _sandbox(answer, labels, kept, config)
        case bodies.KIND_CONTAINER:
            view = _container(answer, labels, kept)
        case _:
            return None
    return Found(
        view=view, state=state.get("Status") or "", pid=int(state.get("Pid") or 0), terminal=bool(own.get("Tty")),
        stdin=bool(kept.get("stdin")), stdin_once=bool(kept.get("once")), stop_signal=str(own.get("StopSignal") or ""),
        host_network=bool(kept.get("host")),
    )  # fmt: skip


def _sandbox(answer: Answer, labels: Mapping[str, str], kept: Answer, config: DockerConfig) -> Sandbox:
    running = (answer.get("State") or {}).get("Status") == "running"
    addresses = (config.host_address,) if kept.get("host") else _addresses(answer)
    return Sandbox(
        id=answer["Id"], pod_uid=labels.get(bodies.POD_UID, ""), namespace=labels.get(bodies.POD_NAMESPACE, ""),
        name=labels.get(bodies.POD_NAME, ""), attempt=int(kept.get("attempt") or 0),
        ready=running and bool(addresses), addresses=addresses if running else (),
        created_at=instant(answer.get("Created") or "") or 0.0,
    )  # fmt: skip


def _addresses(answer: Answer) -> tuple[str, ...]:
    networks = ((answer.get("NetworkSettings") or {}).get("Networks") or {}).values()
    first = (each.get("IPAddress") or "" for each in networks)
    second = (each.get("GlobalIPv6Address") or "" for each in networks)
    return tuple(address for address in (*first, *second) if address)


def _container(answer: Answer, labels: Mapping[str, str], kept: Answer) -> Container:
    state = answer.get("State") or {}
    phase = _PHASES.get(state.get("Status") or "", ContainerPhase.UNKNOWN)
    code, message = int(state.get("ExitCode") or 0), state.get("Error") or ""
    started_at, finished_at = instant(state.get("StartedAt") or ""), instant(state.get("FinishedAt") or "")
    if started_at is not None and finished_at is not None:
        finished_at = max(started_at, finished_at)  # podman may record the start of a short run after its end
    reason: ExitReason | None = None
    if phase is ContainerPhase.CREATED and (message or code):  # in Docker a failed start leaves the state unchanged
        phase, reason = ContainerPhase.EXITED, ExitReason.START_ERROR
        code = code if code in _START_CODES else 128
    elif phase is ContainerPhase.EXITED:
        reason = _exit_reason(state, code, started=started_at is not None)
    pid = int(state.get("Pid") or 0)
    return Container(
        id=answer["Id"],
        sandbox_id=labels.get(bodies.SANDBOX_ID, ""),
        pod_uid=labels.get(bodies.POD_UID, ""),
        name=labels.get(bodies.CONTAINER_NAME, ""),
        attempt=int(kept.get("attempt") or 0),
        phase=phase,
        image_id=answer.get("Image") or "",
        image_reference=kept.get("image") or "",
        created_at=instant(answer.get("Created") or "") or 0.0,
        started_at=started_at,
        finished_at=finished_at if phase is ContainerPhase.EXITED else None,
        exit_code=code if phase is ContainerPhase.EXITED else 0,
        reason=reason,
        message=message,
        identity=f"{pid}/{state.get('StartedAt')}" if pid else "",
        hash=kept.get("hash") or "",
        labels=dict(kept.get("labels") or {}),
    )


def _exit_reason(state: Answer, code: int, *, started: bool) -> ExitReason:
    if state.get("OOMKilled"):
        return ExitReason.OOM_KILLED
    if not started:
        return ExitReason.START_ERROR
    return ExitReason.ERROR if code else ExitReason.COMPLETED


def stats_of(answer: Answer, container: Container, at: float, disk_bytes: int) -> ContainerStats:
    memory = answer.get("memory_stats") or {}
    detail, usage = memory.get("stats") or {}, int(memory.get("usage") or 0)
    inactive = int(detail.get("total_inactive_file", detail.get("inactive_file")) or 0)
    rss = detail.get("total_rss", detail.get("rss", detail.get("anon")))
    cpu = (answer.get("cpu_stats") or {}).get("cpu_usage") or {}
    return ContainerStats(
        container_id=container.id, pod_uid=container.pod_uid, name=container.name, at=at,
        cpu_total_ns=int(cpu.get("total_usage") or 0), memory_working_set_bytes=max(0, usage - inactive),
        memory_rss_bytes=int(usage if rss is None else rss), disk_used_bytes=disk_bytes,
        processes=int((answer.get("pids_stats") or {}).get("current") or 0),
    )  # fmt: skip


def info_of(answer: Answer) -> RuntimeInfo:
    architecture = answer.get("Architecture") or ""
    return RuntimeInfo(
        name="docker", version=answer.get("ServerVersion") or "unknown", os_image=answer.get("OperatingSystem") or "",
        kernel=answer.get("KernelVersion") or "", architecture=_ARCHITECTURES.get(architecture, architecture),
        cpu_milli=1000 * int(answer.get("NCPU") or 0), memory_bytes=int(answer.get("MemTotal") or 0),
    )  # fmt: skip
