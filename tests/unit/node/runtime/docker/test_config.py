"""Settings of the Docker runtime, and the search for the engine's socket."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.node.runtime.docker.config import DockerConfig, find_socket
from shoal.node.runtime.model import (
    RuntimeFailure,
)


def test_the_socket_comes_from_the_settings_else_the_environment_else_a_default_path() -> None:
    def found(socket: str, environ: dict[str, str], *there: str) -> str:
        return find_socket(DockerConfig(cluster="c", node="n", socket=socket), environ, there.__contains__)

    assert found("/a", {"DOCKER_HOST": "unix:///b"}, "/a", "/b") == "/a"
    assert found("", {"DOCKER_HOST": "unix:///b"}, "/b", "/var/run/docker.sock") == "/b"
    assert found("", {}, "/run/podman/podman.sock") == "/run/podman/podman.sock"
    assert found("", {"XDG_RUNTIME_DIR": "/me"}, "/me/podman/podman.sock") == "/me/podman/podman.sock"
    with pytest.raises(RuntimeFailure, match=r"at /b:.*systemctl start docker"):
        found("", {"DOCKER_HOST": "unix:///b"})
    with pytest.raises(RuntimeFailure, match=r"/var/run/docker.sock, /run/podman/podman.sock:.*DOCKER_HOST"):
        found("", {})
    with pytest.raises(RuntimeFailure, match="tcp://x:1.*unix:///PATH"):
        found("", {"DOCKER_HOST": "tcp://x:1"})


def test_invalid_settings_are_refused() -> None:
    for wrong in ({"cluster": ""}, {"node": "a/b"}, {"log_bytes": 1}, {"look_s": 0}):
        with pytest.raises(ConfigError):
            DockerConfig(**{"cluster": "c", "node": "n", **wrong})  # type: ignore[arg-type]
