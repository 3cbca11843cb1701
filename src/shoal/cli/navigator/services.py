"""``shoal services``: services over all clusters."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.query import result_table
from shoal.cli.navigator.session import At, Cluster, Namespace, Watch, follow, opened, pages, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, facts, indented, put, render
from shoal.cli.rest import Rest
from shoal.errors import ConfigError

app = new_app("Show services over all clusters.")

_MOST = 10_000


@app.command()
def services(
    name: Annotated[str, typer.Argument(metavar="[NAMESPACE/NAME]", help="one service, with its endpoints")] = "",
    cluster: Cluster = "",
    namespace: Namespace = "",
    without: Annotated[bool, typer.Option("--without", help="show pods without a service instead")] = False,
    output: Output = Format.TABLE,
    at: At = "",
    watch: Watch = False,
    context: ContextName = "",
) -> None:
    """Show services; services with one name in several clusters are one. It includes endpoints that are not ready."""
    if name and "/" in name:
        namespace, _, name = name.partition("/")
    if name and not namespace:
        raise ConfigError(f"name is {name!r}: use NAMESPACE/NAME, or --namespace")
    with opened(context) as rest:
        if watch:
            _watch(rest, namespace, name, cluster, without, at, output)
        if name and not without:
            answer = rest.get(path_of("services", namespace, name), at=at)
            put(answer, output, lambda: _service_text(answer))
        else:
            params = {"cluster": cluster, "namespace": namespace, "at": at, **({"exposed": "false"} if without else {})}
            answer = pages(rest, path_of("pods" if without else "services"), _MOST, **params)
            put(answer["items"], output, lambda: result_table(answer) if without else _table(answer["items"], output))
    warn_about_stale(answer)


def _watch(rest: Rest, namespace: str, name: str, cluster: str, without: bool, at: str, output: Format) -> NoReturn:
    params = {"cluster": cluster, "namespace": namespace, "limit": _MOST}
    if without:
        follow(rest, path_of("watch", "pods"), {**params, "exposed": "false"}, result_table, output, at=at)
    elif name:
        path = path_of("watch", "services", namespace, name)
        follow(rest, path, {}, lambda found, _: _service_text(found), output, document="", at=at)
    else:
        follow(rest, path_of("watch", "services"), params, lambda found, _: _table(found["items"]), output, at=at)


def _table(items: list[dict[str, Any]], output: Format = Format.TABLE) -> str:
    if not items:
        return "no services\n"
    rows = [
        {**each, "type": each["types"], "ready": f"{each['readyEndpoints']}/{each['endpoints']}",
         "addresses": [place["clusterIp"] for place in each["clusters"] if place["clusterIp"] not in ("", "None")],
         "external": [ip for place in each["clusters"] for ip in place["externalIps"]],
         "clusters": [_cluster(place) for place in each["clusters"]]}
        for each in items
    ]  # fmt: skip
    return render(rows, ("namespace", "name", "type", "ports", "ready", "clusters"), output, ("addresses", "external"))


def _cluster(place: dict[str, Any]) -> str:
    mark = "" if place["freshness"] == "healthy" else f" ({place['freshness']})"
    return f"{place['cluster']}{mark}"


def _service_text(found: dict[str, Any]) -> str:
    text = facts([("service", f"{found['namespace']}/{found['name']}"), ("type", found["types"]),
                  ("endpoints", f"{found['readyEndpoints']} of {found['endpoints']} ready")])  # fmt: skip
    for place in found["clusters"]:
        region = f" ({place['region']})" if place["region"] else ""
        text += f"\n{place['cluster']}{region}: {place['freshness']}\n"
        ports = [
            f"{port['name'] or port['protocol'].lower()}:{port['port']}→{port['target']}" for port in place["ports"]
        ]
        selector = [f"{key}={value}" for key, value in place["selector"].items()]
        pairs = [("address", place["clusterIp"]), ("outside", place["externalIps"]), ("for", place["externalName"]),
                 ("ports", ports), ("selector", selector)]  # fmt: skip
        text += facts(pairs, "  ")
        rows = [_endpoint(each) for each in place["endpoints"]]
        columns = ("address", "state", "pod", "status", "node", "zone", "proxy")
        text += indented(render(rows, columns)) if rows else "  no endpoints\n"
    return text


def _endpoint(each: dict[str, Any]) -> dict[str, Any]:
    if each["terminating"]:
        state = "draining" if each["serving"] else "ending"
    else:
        state = "ready" if each["ready"] else "not ready"
    return {**each, "state": state}
