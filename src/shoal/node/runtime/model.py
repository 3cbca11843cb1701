"""The interface between the node agent and a container runtime.

    agent ──▶ Runtime:  image ─▶ sandbox (one per pod, has the address) ─▶ container (create ─▶ start ─▶ stop ─▶ remove)
    agent ◀── Runtime:  list (the current state), events (hints to call list sooner), logs, sessions, statistics

The runtime decides nothing: it does not restart, probe or retry. It stores the labels, attempt and hash that the agent
gives it and returns them, so that a restarted agent finds its containers with ``list`` and continues. Calls for
different pods may run at the same time. For one pod the agent makes one call after the other, except ``stop`` (again,
with less grace), sessions, logs and statistics. Stopping an exited container and removing a missing one succeed. After
a cancelled call, ``list`` shows everything that the call left behind. Instants are seconds since 1970 on the wall
clock, from the clock that the runtime was given.

``tests/contract/test_node_runtime.py`` checks every implementation against this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shoal.errors import ShoalError

# errors


class RuntimeFailure(ShoalError):
    """A call failed; the text is shown to users in events and statuses."""


class NoSuchContainer(RuntimeFailure):
    """No container or sandbox has the id, or the call needs a running one."""


class ImageFault(StrEnum):
    """Why an image is missing, as container statuses say it."""

    PULL = "ErrImagePull"
    NEVER_PULL = "ErrImageNeverPull"
    INVALID_NAME = "InvalidImageName"
    INSPECT = "ImageInspectError"
    REGISTRY = "RegistryUnavailable"


class ImageFailure(RuntimeFailure):
    """An image could not be pulled or inspected. The agent retries with backoff, except for an invalid name."""

    def __init__(self, fault: ImageFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class CreateFailure(RuntimeFailure):
    """A container could not be created: ``CreateContainerError``."""


class StartFailure(RuntimeFailure):
    """A container was created but did not start, for example because its program does not exist:
    ``RunContainerError``. It has EXITED with code 127 or 128 and reason ``StartError``, and stays in ``list`` until it
    is removed."""


# images


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is on the node."""

    id: str  # digest or another stable identity; ``imageID`` of container statuses
    names: tuple[str, ...]  # references that resolve to it
    size_bytes: int = 0
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # arguments of the entrypoint unless the pod gives its own
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    user: str = ""  # as the image has it: name or number, with or without a group
    stop_signal: str = ""  # of its containers, unless the pod has one
    volumes: tuple[str, ...] = ()  # folders that stay writable in a container with a read-only root
    port: int = 0  # the process runtime's $PORT for pods that declare none; 0: the setting default_port


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCredentials:
    """For one registry, from a pull secret."""

    server: str
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProgress:
    """Progress of a pull; totals are 0 while they are unknown."""

    reference: str
    done_bytes: int = 0
    total_bytes: int = 0


# sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the node that leads to a port of the pod."""

    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVolume:
    """A volume in memory, which the containers of a pod share. The agent has made a folder at ``path``, which is the
    ``host_path`` (or ``within``) of its mounts; a runtime that cannot isolate pods uses the folder."""

    path: str
    size_bytes: int = 0  # 0: no limit of its own
    group: int | None = None  # fsGroup

    def options(self, ids: int) -> dict[str, str]:
        """Of the tmpfs. ``ids``: how many groups there are."""
        found = {"mode": "0777"}
        if self.group is not None and self.group < ids:
            found = {"mode": "02777", "gid": str(self.group)}
        if self.size_bytes:
            found["size"] = str(self.size_bytes)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a pod's containers share. (pod_uid, attempt) is unique: creating it again returns the existing sandbox."""

    pod_uid: str
    namespace: str
    name: str
    attempt: int = 0  # counts the sandboxes of one pod
    hostname: str = ""
    host_network: bool = False  # the pod's address is the node's
    host_pid: bool = False  # it sees the processes of the machine
    host_ipc: bool = False
    ports: tuple[PortMapping, ...] = ()
    directory: str = ""  # of the pod, made by the agent; lives as long as the pod
    dns_servers: tuple[str, ...] = ()
    dns_searches: tuple[str, ...] = ()
    dns_options: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    memory_volumes: tuple[MemoryVolume, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The current state of a sandbox."""

    id: str
    pod_uid: str
    namespace: str
    name: str
    attempt: int
    ready: bool  # False: stopped or in need of replacement; its containers do not run
    addresses: tuple[str, ...]  # the pod's IPs, the first is the primary one; empty only when not ready
    created_at: float


# containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or folder of the node that a container sees at ``container_path``. The agent has made ``host_path``. With
    ``within``, a pod may change what is on the way from that folder to ``host_path``, for example to a symbolic link:
    the runtime must not mount anything outside the folder."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = "None"  # None, HostToContainer, Bidirectional
    volume: str = ""  # the volume's name in the pod, for messages
    within: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """Requests and limits; 0 means none."""

    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_request_bytes: int = 0
    memory_limit_bytes: int = 0
    ephemeral_limit_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """User, groups and rights of a container. None: the default of the image or the runtime."""

    user: int | None = None
    group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    fs_group: int | None = None
    run_as_non_root: bool = False  # starting as user 0 is a CreateFailure
    privileged: bool = False
    read_only_root: bool = False
    allow_privilege_escalation: bool | None = None
    added_capabilities: tuple[str, ...] = ()
    dropped_capabilities: tuple[str, ...] = ()
    seccomp_profile: str = ""  # Unconfined, RuntimeDefault, localhost/<file>


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container. (sandbox, name, attempt) is unique: creating it again returns the existing container.

    ``command`` and ``args`` are the pod's; ``argv_of`` combines them with the image's. The environment is the runtime's
    own variables, then the image's, then ``env``; later entries win.
    """

    name: str
    attempt: int  # restarts so far; ``restartCount`` of the status
    image: Image
    image_reference: str  # as the pod names it
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    mounts: tuple[Mount, ...] = ()
    resources: ContainerResources = field(default_factory=ContainerResources)
    security: Security = field(default_factory=Security)
    stdin: bool = False  # keep standard input open; otherwise it is at its end
    stdin_once: bool = False  # the first attach that ends closes it
    tty: bool = False
    stop_signal: str = ""  # default signal of ``stop``; empty: the image's, else SIGTERM
    ports: tuple[int, ...] = ()  # declared in the pod's spec
    target: str = ""  # for ephemeral containers: the container whose processes it sees
    hash: str = ""  # of the container's spec, stored for the agent
    labels: Mapping[str, str] = field(default_factory=dict)


def argv_of(spec: ContainerSpec) -> tuple[str, ...]:
    """The argv of a container: the pod's command replaces the image's entrypoint and arguments."""
    if spec.command:
        return (*spec.command, *spec.args)
    return (*spec.image.entrypoint, *(spec.args or spec.image.command))


class ContainerPhase(StrEnum):
    """The phase of a container. UNKNOWN: the runtime knows of it but cannot tell its state."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class ExitReason(StrEnum):
    """Why a container exited, as container statuses say it."""

    COMPLETED = "Completed"  # code 0
    ERROR = "Error"
    OOM_KILLED = "OOMKilled"
    START_ERROR = "StartError"
    UNKNOWN = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The current state of a container. The exit fields are valid only if ``phase`` is EXITED."""

    id: str  # without the runtime's name; never reused
    sandbox_id: str
    pod_uid: str
    name: str
    attempt: int
    phase: ContainerPhase
    image_id: str
    image_reference: str
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int = 0  # 128 + signal when a signal ended it
    signal: int = 0
    reason: ExitReason | None = None
    message: str = ""  # details from the runtime, for example the text of a StartError
    identity: str = ""  # of the process, for logs and tests: pid, start time, boot id or the like; empty: none
    hash: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All sandboxes and containers of a runtime, including those from before a restart of the agent or the runtime."""

    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]


# events


class RuntimeEventKind(StrEnum):
    STARTED = "started"
    EXITED = "exited"
    SANDBOX = "sandbox"  # a sandbox changed: not ready any more, or gone
    NOTICE = "notice"  # something a user should know, see ``RuntimeEvent.message``


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEvent:
    """A change: a hint to call ``list`` now. A NOTICE becomes a Warning event of the pod with ``reason`` (one word,
    such as ``VolumeRedirected``) and ``message``."""

    kind: RuntimeEventKind
    pod_uid: str
    container_id: str = ""
    reason: str = ""
    message: str = ""


# logs


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line with its newline. A ``partial`` record has none: the next record of the stream continues the line."""

    at_ns: int  # since 1970
    stream: OutputStream
    data: bytes
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The part of a log to read. ``tail`` counts lines after ``since_ns`` was applied; None means all."""

    follow: bool = False  # continue until the container has exited and its log was read to the end
    tail: int | None = None
    since_ns: int = 0
    streams: frozenset[OutputStream] = frozenset(OutputStream)


# sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The streams of a session. With a terminal, standard error is part of standard output."""

    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


class RuntimeSession(Protocol):
    """A running command (``exec``), or a connection to the container's own process (``attach``)."""

    def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        """Non-empty pieces of output as they arrive; ends when all streams have ended. Only one reader; while it does
        not read, the command blocks."""

    async def write(self, data: bytes) -> None:
        """Write to standard input; waits while the command does not read. Ignored after ``close_input``."""

    async def close_input(self) -> None:
        """End standard input. For an attach this ends the container's input only with ``stdin_once``."""

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal; ignored without a terminal."""

    async def wait(self) -> int:
        """The exit code of the command, for an attach of the container; 128 + signal if a signal ended it."""

    async def close(self) -> None:
        """End the session: the command of an exec is killed, an attach is disconnected. May be called again."""


class PodConnection(Protocol):
    """Bytes to and from a port of a pod."""

    async def read(self, limit: int = 65536) -> bytes:
        """The next bytes; empty at the end."""

    async def write(self, data: bytes) -> None:
        """Write all bytes; waits while the other side does not read."""

    async def write_eof(self) -> None: ...

    async def close(self) -> None: ...


# statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStats:
    """Resource usage of one running container. Its CPU time never decreases."""

    container_id: str
    pod_uid: str
    name: str
    at: float
    cpu_total_ns: int = 0
    memory_working_set_bytes: int = 0
    memory_rss_bytes: int = 0
    disk_used_bytes: int = 0  # written by it, with logs and without volumes
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """The runtime and its machine, as the Node object reports them. Capacity 0 means unknown."""

    name: str  # scheme of container ids: ``process``, ``docker``, ``simulated``
    version: str
    os_image: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


class Runtime(Protocol):
    """Runs the containers of one node. Call ``open`` first and ``close`` last."""

    async def open(self) -> None:
        """Load the state of earlier runs. Raises ``RuntimeFailure``, with what to do, if the runtime cannot work."""

    async def close(self) -> None:
        """Release all resources; containers keep running. ``events`` and followed logs end."""

    async def info(self) -> RuntimeInfo:
        """Information, and a health check: raises ``RuntimeFailure`` while the runtime does not work."""

    # images

    async def image(self, reference: str) -> Image | None:
        """The image, or None if it is not on the node. Raises ``ImageFailure`` INVALID_NAME for an invalid name."""

    async def images(self) -> tuple[Image, ...]: ...

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        """Pull the image, also if an older one is on the node; raises ``ImageFailure``. The agent applies the pull
        policy. Concurrent pulls of one reference share one pull. ``command``: the pod has a command of its own, so a
        runtime whose images only name a program does not need the image."""

    async def remove_image(self, image_id: str) -> None: ...

    # sandboxes

    async def create_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox with an address; it is ready on return. A ``CreateFailure`` leaves nothing behind."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill its containers and release its address."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Stop and remove it, with its containers and their logs."""

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        """Create a container without starting it. A ``CreateFailure`` leaves nothing behind."""

    async def start(self, container_id: str) -> Container:
        """Start it; returns once its process exists, or raises ``StartFailure``."""

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        """Send the stop signal to the main process, and after ``grace_s`` kill all processes of the container; returns
        once it has exited. With several concurrent calls, the earliest deadline counts for all. A container that never
        started becomes EXITED with code 128 + SIGKILL."""

    async def remove(self, container_id: str) -> None:
        """Remove it and its log; a running one is killed."""

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        """Apply new requests and limits to a running container, as far as the runtime can."""

    async def inspect(self, container_id: str) -> Container:
        """The current state of a container; raises ``NoSuchContainer``."""

    async def list(self) -> Inventory:
        """All sandboxes and containers. A change shows here before its event is delivered."""

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Events from the call on, until ``close``. A slow reader may lose older events, never the newest."""

    # logs, sessions, connections, statistics

    def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        """Records in order, in batches; logs are kept until the container is removed. The first step raises
        ``NoSuchContainer``."""

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        """Run a command in a running container, with its environment, directory and user. Raises ``StartFailure`` if
        the program does not exist, ``NoSuchContainer`` if the container does not run."""

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        """Connect to the output of the container from now on, and to its input. Several clients may be attached."""

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        """Connect to a TCP port of the pod, at its loopback or its own address, for port-forward and probes. Raises
        ``ConnectionError`` if nothing listens."""

    async def stats(self) -> tuple[ContainerStats, ...]:
        """Usage of all running containers; cheap enough to call every ten seconds."""
