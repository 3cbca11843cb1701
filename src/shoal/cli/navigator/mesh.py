"""``shoal mesh``: the Istio resources of a workload, configuration mistakes, and the service graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from shoal.cli.apps import moved, new_app
from shoal.cli.navigator.lint import app as lint_app
from shoal.cli.navigator.pods import find_pods
from shoal.cli.navigator.session import At, Cluster, Namespace, Watch, opened, path_of, show, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document, facts, indented, put, render
from shoal.cli.rest import Rest

app = new_app("Show the mesh configuration of workloads, and the service graph.", group=True)


@app.command("workload")
def workload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a pod, a workload or an app; or NAMESPACE/NAME")],
    cluster: Cluster = "",
    namespace: Namespace = "",
    every: Annotated[bool, typer.Option("--all", help="every pod, not only one per cluster and proxy")] = False,
    output: Output = Format.TABLE,
    at: At = "",
    context: ContextName = "",
) -> None:
    """Show the Istio resources that apply to a workload, and why."""
    with opened(context) as rest:
        pods = find_pods(rest, name, cluster=cluster, namespace=namespace, at=at)
        chosen = pods if every else _one_of_each(pods)
        found = [rest.get(path_of("pods", p["cluster"], p["namespace"], p["name"], "istio"), at=at) for p in chosen]
    for answer in found[:1]:
        warn_about_stale(answer)
    put(found, output, lambda: "\n".join(_acting_text(each) for each in found), name=_pod_of)


def _pod_of(found: Mapping[str, Any]) -> str:
    return f"{found['cluster']}/{found['namespace']}/{found['pod']}"


def _one_of_each(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One pod per cluster and proxy version: the pods of a workload are alike."""
    return list({(pod["cluster"], pod["workload"], pod["proxy"]): pod for pod in reversed(pods)}.values())[::-1]


def _acting_text(found: dict[str, Any]) -> str:
    head = facts([("pod", f"{found['namespace']}/{found['pod']}"), ("cluster", found["cluster"]),
                  ("proxy", found["proxy"])])  # fmt: skip
    if not found["items"]:
        return head + "  no Istio resource applies to it\n"
    rows = [
        {**each, "resource": f"{each['kind']} {each['namespace']}/{each['name']}", "why": each["reason"]}
        for each in found["items"]
    ]
    return head + indented(render(rows, ("resource", "why")))


moved(app, "mistakes", to="shoal lint", target=lint_app)


@app.command("graph")
def graph(
    service: Annotated[
        str, typer.Argument(metavar="[SERVICE]", help="only its callers and the services it calls")
    ] = "",
    cluster: Cluster = "",
    namespace: Namespace = "",
    since: Annotated[str, typer.Option("--since", help="time window: 5m, 1h")] = "5m",
    output: Output = Format.TABLE,
    watch: Watch = False,
    context: ContextName = "",
) -> None:
    """Show the calls between services in all clusters: request rate, success and latency. The exit code is 1 if no
    cluster has data."""
    asked = True
    with opened(context) as rest:

        def shown() -> str:
            nonlocal asked
            answer = rest.get(
                path_of("graph"), cluster=cluster, namespace=namespace, service=service, start=since
            )  # fmt: skip
            asked = bool(answer["clusters"])
            for each in answer["failed"]:
                sys.stderr.write(f"note: cluster {each['cluster']} is missing: {each['message']}\n")
            for each in answer["warnings"]:
                sys.stderr.write(f"note: cluster {each['cluster']}: {each['message']}\n")
            return document(answer, output) if not output.is_table else _graph_text(answer)

        show(shown, watch=watch)
    if not asked:
        raise typer.Exit(1)


def _graph_text(answer: dict[str, Any]) -> str:
    if not answer["connections"]:
        return "no calls\n" if answer["clusters"] else "no cluster has data\n"
    rows = [
        {
            "source": f"{each['source']['namespace']}/{each['source']['service']}",
            "destination": f"{each['destination']['namespace']}/{each['destination']['service']}",
            "requests": f"{each['requestsPerSecond']:.2f}/s",
            "success": "" if each["successRate"] is None else f"{100 * each['successRate']:.2f}%",
            "p99": "" if each["p99Ms"] is None else f"{each['p99Ms']:.1f}ms",
            "clusters": [_between(pair) for pair in each["between"]],
        }
        for each in answer["connections"]
    ]
    return render(rows, ("source", "destination", "requests", "success", "p99", "clusters"))


def _between(pair: dict[str, Any]) -> str:
    source, destination = pair["source"], pair["destination"]
    return str(source) if source == destination else f"{source}→{destination}"


@app.command("proxy")
def proxy(
    name: Annotated[str, typer.Argument(metavar="POD", help="NAME or NAMESPACE/NAME")],
    cluster: Cluster = "",
    namespace: Namespace = "",
    raw: Annotated[bool, typer.Option("--raw", help="Envoy's own config dump")] = False,
    output: Output = Format.YAML,
    context: ContextName = "",
) -> None:
    """Show the configuration of a pod's Envoy: listeners, routes, clusters, endpoints."""
    with opened(context) as rest:
        pod = _first(rest, name, cluster, namespace)
        path = path_of("pods", pod["cluster"], pod["namespace"], pod["name"], "proxy-config")
        found = rest.get(path, raw="true" if raw else "")
    put(found, output, lambda: document(found, Format.YAML))


def _first(rest: Rest, name: str, cluster: str, namespace: str) -> dict[str, Any]:
    return find_pods(rest, name, cluster=cluster, namespace=namespace)[0]
