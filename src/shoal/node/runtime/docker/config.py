"""Settings of the docker runtime, and where its socket is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.errors import ConfigError
from shoal.node.runtime.model import RuntimeFailure

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SCHEME = "unix://"
START = (
    "start Docker (systemctl start docker) or podman (systemctl start podman.socket, or "
    "podman system service --time=0 unix:///run/podman/podman.sock), or name another socket with "
    "--docker-socket PATH or DOCKER_HOST=unix:///PATH"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerConfig:
    """One node. Several nodes, also of several clusters, may share an engine."""

    cluster: str  # with ``node`` the label that tells whose a container is; the network's name comes from it
    node: str
    socket: str = ""  # path or unix:// address; empty: DOCKER_HOST, then the usual places
    network: str = ""  # empty: one of the cluster's own
    subnet: str = ""  # of a network that has to be made; empty: the engine chooses
    pause_image: str = ""  # that holds a pod's network; empty: one that the runtime makes itself
    host_address: str = "127.0.0.1"  # of the node, and of pods on the host's network
    log_bytes: int = 10 << 20  # of one file of a container's log
    log_files: int = 5
    seccomp_root: str = "/var/lib/kubelet/seccomp"  # folder of profiles named localhost/...
    look_s: float = 5.0  # how often to look at everything, whatever the events say
    request_s: float = 60.0  # for an answer of the engine
    sizes_s: float = 60.0  # how old the sizes of containers' files may be; 0: sizes are not asked for

    def __post_init__(self) -> None:
        for name, value in (("cluster", self.cluster), ("node", self.node)):
            if _NAME.fullmatch(value) is None:
                raise ConfigError(f"docker.{name} is {value!r}: use letters, digits, '-', '_' and '.'")
        if self.log_bytes < 4096 or self.log_files < 1:
            raise ConfigError("docker.log_bytes must be 4096 or more and docker.log_files 1 or more")
        if min(self.look_s, self.request_s) <= 0:
            raise ConfigError("docker.look_s and docker.request_s must be more than 0")

    @property
    def network_name(self) -> str:
        return self.network or f"shoal-{self.cluster}"


def find_socket(config: DockerConfig, environ: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """The path of the engine's socket: as configured, else as ``DOCKER_HOST`` says, else a usual place."""
    said = config.socket or environ.get("DOCKER_HOST", "")
    if said:
        path = said.removeprefix(_SCHEME)
        if not path.startswith("/"):
            raise RuntimeFailure(f"the Docker socket is {said!r}: use unix:///PATH; other schemes are not supported")
        if not exists(path):
            raise RuntimeFailure(f"no Docker socket at {path}: {START}")
        return path
    places = ["/var/run/docker.sock", "/run/podman/podman.sock"]
    if own := environ.get("XDG_RUNTIME_DIR", ""):
        places += [f"{own}/docker.sock", f"{own}/podman/podman.sock"]
    for path in places:
        if exists(path):
            return path
    raise RuntimeFailure(f"no Docker socket at {', '.join(places)}: {START}")
