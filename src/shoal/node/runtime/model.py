"""The seam between the node agent and whatever runs containers.

    agent ──▶ Runtime:  image ─▶ sandbox (one per pod, has the address) ─▶ container (create ─▶ start ─▶ stop ─▶ remove)
    agent ◀── Runtime:  list (the truth), events (hints to look at the truth sooner), logs, sessions, statistics

The runtime decides nothing: it neither restarts nor probes nor gives up. It keeps what it was told (labels, attempt,
hash) and reports it back, so that an agent that was killed finds its containers again with ``list`` and goes on. All
calls may be made at the same time for different pods; for one pod the agent makes them one after the other, except
``stop`` (again, with less grace), sessions, logs and statistics. Calls are idempotent where that makes sense: stopping
what has exited and removing what is gone succeed. Cancelling a call leaves at most what ``list`` shows. Instants are
seconds since 1970 on the wall clock; a runtime takes them from the clock it was given.

``tests/contract/test_node_runtime.py`` holds every implementation to this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shoal.errors import ShoalError

# errors


class RuntimeFailure(ShoalError):
    """The runtime could not do what it was asked; the text is shown to users in events and statuses."""


class NoSuchContainer(RuntimeFailure):
    """There is no container or sandbox of that id, or it is not running where it has to be."""


class ImageFault(StrEnum):
    """Why an image is not there, in the words of container statuses."""

    PULL = "ErrImagePull"
    NEVER_PULL = "ErrImageNeverPull"
    INVALID_NAME = "InvalidImageName"
    INSPECT = "ImageInspectError"
    REGISTRY = "RegistryUnavailable"


class ImageFailure(RuntimeFailure):
    """An image could not be got. Pulls are tried again with backoff, except for a name that cannot be one."""

    def __init__(self, fault: ImageFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class CreateFailure(RuntimeFailure):
    """A container could not be made: ``CreateContainerError``."""


class StartFailure(RuntimeFailure):
    """A container was made and could not be started, as when its program does not exist: ``RunContainerError``. The
    container has EXITED with code 127 or 128 and reason ``StartError``, and is in ``list`` until it is removed."""


# images


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is on the node."""

    id: str  # digest or another stable identity; ``imageID`` of container statuses
    names: tuple[str, ...]  # references that lead to it
    size_bytes: int = 0
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # arguments of the entrypoint unless the pod gives its own
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    user: str = ""  # as the image has it: name or number, with or without a group


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCredentials:
    """For one registry, from a pull secret."""

    server: str
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProgress:
    """How far a pull is; totals are 0 while they are not known."""

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
class SandboxSpec:
    """What a pod's containers share. (pod_uid, attempt) is unique: creating the same again returns the one there is."""

    pod_uid: str
    namespace: str
    name: str
    attempt: int = 0  # counts the sandboxes of one pod
    hostname: str = ""
    host_network: bool = False  # the pod's address is the node's
    ports: tuple[PortMapping, ...] = ()
    directory: str = ""  # the pod's own folder, made by the agent; lives as long as the pod, not as the sandbox
    dns_servers: tuple[str, ...] = ()
    dns_searches: tuple[str, ...] = ()
    dns_options: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A sandbox as it is."""

    id: str
    pod_uid: str
    namespace: str
    name: str
    attempt: int
    ready: bool  # False: stopped, or it has to be replaced; its containers do not run any more
    addresses: tuple[str, ...]  # the pod's IPs, the first is the primary one; empty only when not ready
    created_at: float


# containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or folder of the node that a container sees at ``container_path``. The agent has made ``host_path``."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = "None"  # None, HostToContainer, Bidirectional
    volume: str = ""  # the volume's name in the pod, for messages


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
    """As whom and with which rights a container runs. None: as the image or the runtime has it."""

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
    """One container. (sandbox, name, attempt) is unique: creating the same again returns the one there is.

    ``command`` and ``args`` are the pod's; ``argv_of`` says what runs. ``env`` is complete and in order, later entries
    win; the image's own environment comes before it. A runtime may add variables of its own before all of them.
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
    stdin: bool = False  # keep standard input open; else it is at its end from the start
    stdin_once: bool = False  # the first attach that ends closes it
    tty: bool = False
    stop_signal: str = ""  # what ``stop`` sends when it is not told; empty: the image's, else SIGTERM
    ports: tuple[int, ...] = ()  # that it says it listens on
    target: str = ""  # for ephemeral containers: the container whose processes it sees
    hash: str = ""  # of the pod's container, kept for the agent
    labels: Mapping[str, str] = field(default_factory=dict)


def argv_of(spec: ContainerSpec) -> tuple[str, ...]:
    """What a container runs: a pod's command replaces the image's entrypoint and its arguments."""
    if spec.command:
        return (*spec.command, *spec.args)
    return (*spec.image.entrypoint, *(spec.args or spec.image.command))


class ContainerPhase(StrEnum):
    """Where a container is. UNKNOWN: there are traces of it, and what became of it cannot be told."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class ExitReason(StrEnum):
    """Why a container ended, in the words of container statuses."""

    COMPLETED = "Completed"  # code 0
    ERROR = "Error"
    OOM_KILLED = "OOMKilled"
    START_ERROR = "StartError"
    UNKNOWN = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container as it is. Exit fields mean something only when ``phase`` is EXITED."""

    id: str  # without the runtime's name; unique for ever
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
    message: str = ""  # what the runtime has to say about it, as the text of a StartError
    identity: str = ""  # of the process, for logs and tests: pid, start time, boot id or the like; empty: none
    hash: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that a runtime has, also what it has kept over a restart of the agent or of itself."""

    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]


# what happens by itself


class RuntimeEventKind(StrEnum):
    STARTED = "started"
    EXITED = "exited"
    SANDBOX = "sandbox"  # a sandbox changed: not ready any more, or gone
    NOTICE = "notice"  # something a user should know, see ``RuntimeEvent.message``


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEvent:
    """Something changed: a hint to look at ``list`` now rather than later. A NOTICE becomes a Warning event of the
    pod with ``reason`` (one word, such as ``VolumeRedirected``) and ``message``."""

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
    """One line, with its end of line unless it is ``partial``: the rest comes as the next record of that stream."""

    at_ns: int  # since 1970
    stream: OutputStream
    data: bytes
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which part of a log. ``tail`` counts lines after ``since_ns`` has been applied; None means all."""

    follow: bool = False  # go on until the container has exited and its log is at the end
    tail: int | None = None
    since_ns: int = 0
    streams: frozenset[OutputStream] = frozenset(OutputStream)


# sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Which streams a session has. With a terminal, errors come on standard output."""

    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


class RuntimeSession(Protocol):
    """A running command (``exec``) or a link to the container's own process (``attach``)."""

    def output(self) -> AsyncIterator[tuple[OutputStream, bytes]]:
        """Pieces as they come, never empty; ends when all streams are at their end. Read by one reader, which slows
        the command down when it does not read."""

    async def write(self, data: bytes) -> None:
        """To standard input; waits while the command does not read. Ignored once input is closed."""

    async def close_input(self) -> None:
        """Standard input is at its end. For an attach it ends the container's input only with ``stdin_once``."""

    async def resize(self, width: int, height: int) -> None:
        """The terminal's new size; ignored without a terminal."""

    async def wait(self) -> int:
        """The exit code, 128 + signal when a signal ended it; for an attach that of the container."""

    async def close(self) -> None:
        """Give the session up: an exec's command is killed, an attach is let go. Safe to call more than once."""


class PodConnection(Protocol):
    """Bytes to and from a port of a pod."""

    async def read(self, limit: int = 65536) -> bytes:
        """What has come; empty at the end."""

    async def write(self, data: bytes) -> None:
        """Waits while the other side does not read."""

    async def write_eof(self) -> None: ...

    async def close(self) -> None: ...


# statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStats:
    """Use of one running container. Processor time only grows while the container runs."""

    container_id: str
    pod_uid: str
    name: str
    at: float
    cpu_total_ns: int = 0
    memory_working_set_bytes: int = 0
    memory_rss_bytes: int = 0
    disk_used_bytes: int = 0  # what it wrote, logs included, volumes not
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """What a node says about its runtime and about the machine below it. Capacity 0: the runtime does not know."""

    name: str  # scheme of container ids: ``process``, ``docker``, ``simulated``
    version: str
    os_image: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


class Runtime(Protocol):
    """What runs containers. One per node. Built by ``app``; ``open`` before anything else, ``close`` at the end."""

    async def open(self) -> None:
        """Find what an earlier run left. ``RuntimeFailure`` when the runtime cannot work at all; says what to do."""

    async def close(self) -> None:
        """Let go of everything without ending any container; ``events`` and followed logs end."""

    async def info(self) -> RuntimeInfo:
        """Also the health check: raises ``RuntimeFailure`` while the runtime does not work."""

    # images

    async def image(self, reference: str) -> Image | None:
        """The image if it is on the node. ``ImageFailure`` INVALID_NAME for what cannot be a reference."""

    async def images(self) -> tuple[Image, ...]: ...

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...] = (),
        progress: Callable[[PullProgress], None] = lambda _: None,
        command: bool = False,
    ) -> Image:
        """Get the image, newer than what is there if there is one; ``ImageFailure`` says why not. The agent decides by
        pull policy whether to call this; two pulls of one reference at a time share one. ``command``: the pod says
        itself what to run, so that a runtime whose images are no more than that can do without."""

    async def remove_image(self, image_id: str) -> None: ...

    # sandboxes

    async def create_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Make it and give it its address; ready when this returns. ``CreateFailure`` leaves nothing behind."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill what still runs in it and give its address back."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Stop it and forget it with its containers and their logs."""

    # containers

    async def create(self, sandbox_id: str, spec: ContainerSpec) -> Container:
        """Make a container that does not run yet. ``CreateFailure`` leaves nothing behind."""

    async def start(self, container_id: str) -> Container:
        """Run it; returns when its process exists, or raises ``StartFailure``."""

    async def stop(self, container_id: str, *, grace_s: float, signal: str = "") -> Container:
        """Send the stop signal to the main process, after ``grace_s`` kill all of the container's processes; returns
        when it has exited. Called again meanwhile, the shorter rest of grace counts for all. A container that never
        started has then EXITED with code 128 + SIGKILL."""

    async def remove(self, container_id: str) -> None:
        """Forget it and its log; kills it when it runs."""

    async def update(self, container_id: str, resources: ContainerResources) -> None:
        """Apply new requests and limits to a running container, as far as the runtime can."""

    async def inspect(self, container_id: str) -> Container:
        """``NoSuchContainer`` when it is not there."""

    async def list(self) -> Inventory:
        """Everything there is. The truth: what an event says is here at the latest when the event is handed out."""

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """What happens from the call on, until ``close``. Some may be lost when nobody reads; never the last one."""

    # looking inside

    def logs(self, container_id: str, options: LogOptions) -> AsyncIterator[tuple[LogRecord, ...]]:
        """Records in order, as many at a time as there are; kept until the container is removed. Raises
        ``NoSuchContainer`` on the first step."""

    async def exec(self, container_id: str, command: tuple[str, ...], options: SessionOptions) -> RuntimeSession:
        """Run a command in a running container, with its environment, folder and user. ``StartFailure`` when there is
        no such program, ``NoSuchContainer`` when it does not run."""

    async def attach(self, container_id: str, options: SessionOptions) -> RuntimeSession:
        """What the container writes from now on, and its input. Several may be attached at once."""

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        """A connection to a TCP port of the pod, at its own loopback or its address; ``ConnectionError`` when nobody
        listens. For port-forward and for probes."""

    async def stats(self) -> tuple[ContainerStats, ...]:
        """Of all running containers; cheap enough for every ten seconds."""
