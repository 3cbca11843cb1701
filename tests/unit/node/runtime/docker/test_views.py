"""Containers, sandboxes and statistics, from responses of the engine."""

from __future__ import annotations

from typing import Any

import pytest
from docker_specs import CONFIG, CREATE_CONTEXT, SANDBOX, a_spec

from shoal.node.runtime.docker import bodies, views
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ExitReason,
    Sandbox,
    SandboxSpec,
)


def inspected(body: dict[str, Any], **state: Any) -> dict[str, Any]:
    """What an engine says about a container made from ``body``."""
    return {
        "Id": "a" * 64,
        "Created": "2024-01-01T00:00:00Z",
        "Image": "sha256:1",
        "Config": {"Labels": body["Labels"], "Tty": False, "StopSignal": "SIGINT"},
        "State": {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}
        | state,
        "NetworkSettings": {"Networks": {"shoal-c1": {"IPAddress": "10.1.2.3", "GlobalIPv6Address": "fd00::3"}}},
    }


def container(**state: Any) -> Container:
    body = bodies.container_body(a_spec(hash="h", labels={"a": "b"}, stdin=True), SANDBOX, CREATE_CONTEXT)
    found = views.found_of(inspected(body, **state), CONFIG)
    assert found is not None and isinstance(found.view, Container)
    assert found.stop_signal == "SIGINT" and found.stdin
    return found.view


def test_a_container_is_read_back_with_the_fields_it_was_created_with() -> None:
    found = container()
    assert (found.name, found.attempt, found.hash, dict(found.labels)) == ("main", 2, "h", {"a": "b"})
    assert (found.sandbox_id, found.pod_uid, found.image_reference) == (SANDBOX.id, "u1", "busybox:1")
    assert (found.phase, found.started_at, found.finished_at) == (ContainerPhase.CREATED, None, None)


_RAN = {"StartedAt": "2024-01-01T00:00:01Z", "FinishedAt": "2024-01-01T00:00:02Z"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"Status": "running", "Pid": 7, **_RAN}, (ContainerPhase.RUNNING, 0, None)),
        ({"Status": "paused", **_RAN}, (ContainerPhase.RUNNING, 0, None)),
        ({"Status": "exited", "ExitCode": 0, **_RAN}, (ContainerPhase.EXITED, 0, ExitReason.COMPLETED)),
        ({"Status": "stopped", "ExitCode": 3, **_RAN}, (ContainerPhase.EXITED, 3, ExitReason.ERROR)),
        (
            {"Status": "exited", "ExitCode": 137, "OOMKilled": True, **_RAN},
            (ContainerPhase.EXITED, 137, ExitReason.OOM_KILLED),
        ),
        ({"Status": "created", "ExitCode": 127, "Error": "no x"}, (ContainerPhase.EXITED, 127, ExitReason.START_ERROR)),
        ({"Status": "created", "ExitCode": 1, "Error": "no x"}, (ContainerPhase.EXITED, 128, ExitReason.START_ERROR)),
        ({"Status": "exited", "ExitCode": 128}, (ContainerPhase.EXITED, 128, ExitReason.START_ERROR)),
        ({"Status": "something"}, (ContainerPhase.UNKNOWN, 0, None)),
    ],
)
def test_states_of_the_engine_are_phases_with_reasons(state: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = container(**state)
    assert (found.phase, found.exit_code, found.reason) == expected


def test_a_container_never_finishes_before_it_started() -> None:
    found = container(Status="exited", StartedAt="2024-01-01T00:00:01.5Z", FinishedAt="2024-01-01T00:00:01.4Z")
    assert found.started_at == found.finished_at


def test_a_sandbox_is_ready_while_it_runs_and_has_an_address() -> None:
    spec = SandboxSpec(pod_uid="u", namespace="ns", name="p", attempt=3)
    body = bodies.sandbox_body(spec, "pause", CREATE_CONTEXT)
    running = views.found_of(inspected(body, Status="running"), CONFIG)
    assert running is not None and isinstance(running.view, Sandbox)
    assert (running.view.ready, running.view.addresses, running.view.attempt) == (True, ("10.1.2.3", "fd00::3"), 3)
    ended = views.found_of(inspected(body, Status="exited"), CONFIG)
    assert ended is not None and isinstance(ended.view, Sandbox)
    assert (ended.view.ready, ended.view.addresses) == (False, ())


def test_containers_of_other_nodes_are_ignored() -> None:
    body = bodies.container_body(a_spec(), SANDBOX, CREATE_CONTEXT)
    assert views.found_of(inspected(body), DockerConfig(cluster="c1", node="node-2")) is None
    assert views.found_of(inspected({"Labels": {}}), CONFIG) is None


def test_the_working_set_excludes_inactive_file_pages() -> None:
    answer = {
        "cpu_stats": {"cpu_usage": {"total_usage": 5}},
        "memory_stats": {"usage": 100, "stats": {"inactive_file": 30, "anon": 60}},
        "pids_stats": {"current": 2},
    }
    found = views.stats_of(answer, container(), 9.0, 11)
    assert (found.cpu_total_ns, found.memory_working_set_bytes, found.memory_rss_bytes) == (5, 70, 60)
    assert (found.disk_used_bytes, found.processes) == (11, 2)
    assert views.stats_of({}, container(), 9.0, 0).memory_working_set_bytes == 0
