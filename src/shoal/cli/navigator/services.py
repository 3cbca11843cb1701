"""``shoal services``: services over all clusters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.query import result_text
from shoal.cli.navigator.session import At, Cluster, Namespace, Watch, opened, pages, path_of, show, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document, facts, indented, render
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
    warned: set[str] = set()
    with opened(context) as rest:

        def shown() -> str:
            if without:
                answer = pages(
                    rest, path_of("pods"), _MOST, cluster=cluster, namespace=namespace, exposed="false", at=at
                )
                warn_about_stale(answer, warned)
                return result_text(answer, output)
            if name:
                return _one(rest, namespace, name, at, output, warned)
            answer = pages(rest, path_of("services"), _MOST, cluster=cluster, namespace=namespace, at=at)
            warn_about_stale(answer, warned)
            return _list(answer["items"], output)

        show(shown, watch=watch)


def _list(items: list[dict[str, Any]], output: Format) -> str:
    if output is not Format.TABLE:
        return document(items, output)
    if not items:
        return "no services\n"
    rows = [
        {**each, "type": each["types"], "ready": f"{each['readyEndpoints']}/{each['endpoints']}",
         "clusters": [_cluster(place) for place in each["clusters"]]}
        for each in items
    ]  # fmt: skip
    return render(rows, ("namespace", "name", "type", "ports", "ready", "clusters"))


def _cluster(place: dict[str, Any]) -> str:
    mark = "" if place["freshness"] == "healthy" else f" ({place['freshness']})"
    return f"{place['cluster']}{mark}"


def _one(rest: Rest, namespace: str, name: str, at: str, output: Format, warned: set[str]) -> str:
    found = rest.get(path_of("services", namespace, name), at=at)
    warn_about_stale(found, warned)
    if output is not Format.TABLE:
        return document(found, output)
    text = facts([("service", f"{namespace}/{name}"), ("type", found["types"]),
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
