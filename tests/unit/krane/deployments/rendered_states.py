"""Builders of desired state, and of every state that differs from one in a single field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shoal.krane.deployments.render import Rendered, render
from shoal.krane.deployments.rendering import rendering_for
from shoal.krane.owner import Owner
from shoal.wire.fleet.v1 import cluster_pb as pb

OWNER = Owner(fleet="flt_1", cluster="c1", region="eu", shard="default")


def state(**fields: Any) -> pb.DeploymentState:
    """A small one."""
    given: dict[str, Any] = {
        "deployment": "dep_1", "workspace": "ws_1", "project": "prj_1", "environment": "env_1", "app": "app_1",
        "namespace": "shop-live", "name": "web-1-abc", "app_name": "web", "image": "shop/web:1", "port": 8080,
        "replicas": 2, "running": True, "revision": 1, "region": "eu",
    }  # fmt: skip
    return pb.DeploymentState(**{**given, **fields})


def full_state(**fields: Any) -> pb.DeploymentState:
    """One with every field set."""
    given: dict[str, Any] = {
        "project_name": "shop", "environment_name": "live", "command": ["serve"], "args": ["--all"], "env": {"A": "1"},
        "secrets": [pb.SealedSecret(secret="sec_1", version=3, wrapped_key=b"w", ciphertext=b"c", variables=["PASSWORD"])],
        "resources": pb.Resources(cpu_millicores=250, memory_mib=512, ephemeral_mib=100), "protocol": "http1",
        "healthcheck": pb.HealthCheck(
            kind="http", path="/healthz", command=["true"], port=9090, initial_delay_seconds=3, period_seconds=4,
            timeout_seconds=2, failures=5,
        ),
        "shutdown_signal": "SIGINT", "termination_seconds": 40,
        "git": pb.Git(sha="abc123", branch="main", repository="shop/web", message="first"),
        "drift": pb.Drift.CORRECT, "node_selector": {"disk": "fast"},
        "tolerations": [pb.Toleration(key="team", operator="Equal", value="shop", effect="NoSchedule")],
        "taken_from": "b", "render": 2,
        "registries": [pb.SealedSecret(secret="sec_2", version=1, wrapped_key=b"w", ciphertext=b"c", variables=["SERVER"])],
        "security": pb.Security(
            capabilities=["CHOWN"], privilege_escalation=True, run_as_non_root=True, run_as_user=1000, unconfined=True
        ),
        "check_jobs": [pb.CheckJob(
            id="check-smoke-abc", check="smoke", image="shop/smoke:1", command=["smoke"], args=["--all"],
            env={"B": "2"}, resources=pb.Resources(cpu_millicores=100, memory_mib=128, ephemeral_mib=10),
            timeout_seconds=60,
        )],
    }  # fmt: skip
    return state(**{**given, **fields})


def rendered(given: pb.DeploymentState, **values: str) -> Rendered:
    how, registries = rendering_for(given.render, None), '{"auths":{}}' if given.registries else ""
    return render(given, OWNER, values, how, registries=registries)


def pod_spec(made: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = made.root["spec"]["template"]["spec"]
    return found


def container(made: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = pod_spec(made)["containers"][0]
    return found


def variables(made: Rendered) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container(made)["env"]}


def part(made: Rendered, kind: str) -> dict[str, Any]:
    return next(obj for obj in made.objects if obj["kind"] == kind)


def kinds(made: Rendered) -> list[str]:
    return [obj["kind"] for obj in made.objects]


def changed_in_each_field(message: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """For every field that is set, also in the messages within: its path and the message with that field changed."""
    for field in message.desc().fields:
        value = getattr(message, field.name)
        if value is None:
            continue
        nested = value if hasattr(value, "to_binary") else value[0] if _is_list_of_messages(value) else None
        if nested is None:
            yield path + field.name, _with(message, field.name, _another(field.name, value))
            continue
        for inner, changed in changed_in_each_field(nested, f"{type(nested).__name__}."):
            yield inner, _with(message, field.name, changed if nested is value else [changed])


def _is_list_of_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and hasattr(value[0], "to_binary")


_OTHER = {"protocol": "h2c", "kind": "tcp", "shutdown_signal": "SIGQUIT", "namespace": "other", "operator": "Exists"}


def _another(name: str, value: Any) -> Any:
    if name == "render":
        return 1  # rules that are not known yet are taken for the newest
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return _OTHER.get(name) or f"{value}x"
    if isinstance(value, bytes):
        return value + b"x"
    if isinstance(value, dict):
        return {**value, "MORE": "x"}
    if isinstance(value, list):
        return [*value, "more"]
    return type(value)(value + 1)


def _with(message: Any, name: str, value: Any) -> Any:
    copy = type(message).from_binary(message.to_binary())
    setattr(copy, name, value)
    return copy


def unused_fields(states: list[Any], render: Callable[[Any], Any]) -> set[str]:
    """The fields of the wire that change nothing of what is rendered, in none of the states."""
    used: dict[str, bool] = {}
    for each in states:
        before = render(each)
        for path, changed in changed_in_each_field(each):
            used[path] = used.get(path, False) or render(changed) != before
    return {path for path, is_used in used.items() if not is_used}


def all_fields(message: Any) -> set[str]:
    """The paths that ``changed_in_each_field`` gives for a message with everything set."""
    return {path for path, _ in changed_in_each_field(message)}
