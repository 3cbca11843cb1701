"""Finds pods by the name of a pod, a workload or an app, in all clusters or in one."""

from __future__ import annotations

from typing import Any

from shoal.cli.navigator.session import pages, path_of
from shoal.cli.rest import Rest
from shoal.errors import ConfigError, ShoalError

_MOST = 1000
_COLUMNS = "cluster, namespace, name, workload, app, status, ready, proxy, container, created"


class NoSuchPod(ShoalError):
    """No pod, workload or app has the given name."""


def find_pods(rest: Rest, name: str, *, cluster: str = "", namespace: str = "", at: str = "") -> list[dict[str, Any]]:
    """The pods sorted by cluster, namespace and name; raises ``NoSuchPod`` if there are none."""
    name = _as_queried(name)
    if name.count("/") == 2:
        where = [_of_app(name)]
    elif "/" in name:
        first, _, rest_of_name = name.partition("/")
        if first[:1].isupper():  # Deployment/web
            where = [f"workload = {quoted(name)}"]
        else:
            namespace, name = first, rest_of_name
            where = [_named(name)]
    else:
        where = [_named(name)]
    where += [
        f"{field} = {quoted(value)}" for field, value in (("cluster", cluster), ("namespace", namespace)) if value
    ]
    found = pages(rest, path_of("query"), _MOST, q=f"pods where {' and '.join(where)} select {_COLUMNS}", at=at)
    items: list[dict[str, Any]] = found["items"]
    exact = [each for each in items if each["name"] == name]
    if not items:
        raise NoSuchPod(_missing(rest, name, cluster, namespace, at))
    return exact or items


def _as_queried(name: str) -> str:
    """``app/NAME`` and ``pod/NAME`` without their kind, ``deployment/NAME`` as workloads are called."""
    word, _, rest = name.partition("/")
    if rest and word in ("app", "apps", "pod", "pods", "po"):
        return rest
    kind = {"deployment": "Deployment", "deploy": "Deployment", "statefulset": "StatefulSet", "sts": "StatefulSet",
            "daemonset": "DaemonSet", "ds": "DaemonSet", "job": "Job"}.get(word)  # fmt: skip
    return f"{kind}/{rest}" if kind and rest and "/" not in rest else name


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _of_app(path: str) -> str:
    """``PROJECT/ENVIRONMENT/APP``, as commands of the fleet name an app."""
    parts = path.split("/")
    if not all(parts):
        raise ConfigError(f"name is {path!r}: use PROJECT/ENVIRONMENT/APP, NAMESPACE/NAME or a name")
    fields = zip(("project", "environment", "app"), parts, strict=True)
    return " and ".join(f"{field} = {quoted(value)}" for field, value in fields)


def _named(name: str) -> str:
    workloads = ", ".join(quoted(f"{kind}/{name}") for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job"))
    return f"(name = {quoted(name)} or app = {quoted(name)} or workload in ({workloads}))"


def _missing(rest: Rest, name: str, cluster: str, namespace: str, at: str) -> str:
    where = "".join(f" in {word} {value}" for word, value in (("cluster", cluster), ("namespace", namespace)) if value)
    hits = rest.get(path_of("search"), text=name, kind="pods", cluster=cluster, limit=3, at=at)["items"]
    near = ", ".join(f"{each['namespace']}/{each['name']} ({each['cluster']})" for each in hits)
    return f"no pod, workload or app {name!r} found{where}" + (f"; did you mean {near}?" if near else "")
