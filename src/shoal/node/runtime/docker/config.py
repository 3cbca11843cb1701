"""Settings of the docker runtime, and the search for the engine's socket."""

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
    """Settings of one node. Nodes of one or several clusters may share an engine."""

    cluster: str  # with ``node``, the owner in the labels of containers; also part of the network's name
    node: str
    socket: str = ""  # path or unix:// address; empty: DOCKER_HOST, then the default paths
    network: str = ""  # empty: a network for this cluster
    subnet: str = ""  # of a network that the runtime creates; empty: the engine chooses
    pause_image: str = ""  # image of sandboxes; empty: one that the runtime builds
    host_address: str = "127.0.0.1"  # of the node, and of pods on the host's network
    log_bytes: int = 10 << 20  # of one file of a container's log
    log_files: int = 5
    seccomp_root: str = "/var/lib/kubelet/seccomp"  # folder of profiles named localhost/...
    look_s: float = 5.0  # interval of the check of all containers, besides events
    request_s: float = 60.0  # timeout of a request
    sizes_s: float = 60.0  # maximum age of the sizes of containers' files; 0: sizes are not reported

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
    """The path of the engine's socket: from the settings, else from ``DOCKER_HOST``, else the first default path."""
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
