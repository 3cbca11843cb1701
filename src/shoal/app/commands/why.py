"""``shoal why``: why an app or gateways are where they are and what they lack, and why a pod is on its node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.app.home import directory
from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.rollouts import subject
from shoal.cli.fleet.session import Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put, render
from shoal.errors import ConfigError

if TYPE_CHECKING:  # only one of the two commands needs a Kubernetes client
    from shoal.client import AccessConfig
    from shoal.scheduler.explain import PodExplanation

app = new_app("Say why an app, gateways or a pod are where they are, and what they lack.", group=True, default="app")

_COLUMNS = ("node", "fits", "score", "why")


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The cluster that the options select."""

    dir: Path | None = None
    kubeconfig: str = ""
    context: str = ""

    def access(self, environ: Mapping[str, str] = os.environ) -> AccessConfig:
        """From ``--kubeconfig``, ``--dir``, ``$KUBECONFIG``, the cluster of `shoal up` or kubectl's file, in order."""
        from shoal.app.commands.token import cluster_directory
        from shoal.client import load

        if self.kubeconfig:
            return load(self.kubeconfig, context=self.context)
        if self.dir is None and environ.get("KUBECONFIG"):
            return load(context=self.context, env=environ)
        try:
            found = cluster_directory(directory(self.dir, environ)) / "kubeconfig"
        except ConfigError:
            if self.dir is not None:
                raise
            return load(context=self.context, env=environ)
        return load(found, context=self.context)


@app.command("app")
def why_app(
    name: Name,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Say why an app is in its clusters, and why it is not ready."""
    with opened(context, project, environment) as session:
        found = session.get(subject(session, name), "explain")
    put(found, output, lambda: _lines(found))


@app.command("environment")
def why_environment(
    name: Name,
    output: Output = Format.TABLE,
    project: Project = "",
    context: ContextName = "",
) -> None:
    """Say what the gateways of an environment lack, and what their rollout waits for or why it went back."""
    with opened(context, project, "") as session:
        found = session.get(session.find("environment", name), "explain")
    put(found, output, lambda: _lines(found))


def _lines(found: Mapping[str, Any]) -> str:
    return "\n".join(found["lines"] or [found["status"]["summary"]]) + "\n"


@app.command("pod")
def why_pod(
    name: Annotated[str, typer.Argument(help="name of the pod")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="default: the kubeconfig's")] = "",
    output: Output = Format.TABLE,
    dir: Annotated[Path | None, typer.Option(help="state directory of a cluster on this machine")] = None,
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig of any Kubernetes cluster")] = "",
    context: Annotated[str, typer.Option(help="context in the kubeconfig; default: the current one")] = "",
) -> None:
    """Show each node's score for the pod, or why the pod does not fit there."""
    import asyncio  # only for a pod

    access = ClusterChoice(dir, kubeconfig, context).access()
    found = asyncio.run(_ask(access, namespace or access.namespace, name))
    put(_content(found), output, lambda: _text(found))


async def _ask(access: AccessConfig, namespace: str, name: str) -> PodExplanation:
    from shoal.client import connect
    from shoal.scheduler.explain import explain

    clock = RealClock()
    async with connect(access, clock=clock) as client:
        return await explain(client, namespace, name, clock=clock)


def _text(found: PodExplanation) -> str:
    lines = [f"{found.namespace}/{found.name}: {_where(found)}"]
    if found.message and found.phase not in ("Succeeded", "Failed"):
        lines.append(f"now: {found.message}")
    if found.said and found.said != found.message:
        lines.append(f"the scheduler reported: {found.said}")
    if found.nominated and not found.node:
        lines.append(f"the pod fits on {found.nominated} if pods of lower priority are evicted")
    if found.unseen:
        lines.append(f"left out, because they could not be read: {', '.join(found.unseen)}")
    rows = [{**row, "why": _why(row)} for row in _rows(found)]
    table = f"\n{render(rows, _COLUMNS)}" if rows else ""
    return "\n".join(lines) + "\n" + table


def _where(found: PodExplanation) -> str:
    if not found.node:
        return "not on a node"
    row = next((row for row in found.nodes if row.node == found.node), None)
    if row is None:
        return f"on {found.node}, which does not exist"
    if row.refusal is not None:
        return f"on {found.node}, where it would not fit now"
    better = sum(other.refusal is None and other.total > row.total for other in found.nodes)
    return f"on {found.node}, " + (f"nodes with a higher score now: {better}" if better else "the best score now")


def _rows(found: PodExplanation) -> list[dict[str, Any]]:
    return [
        {
            "node": row.node, "here": row.node == found.node, "fits": row.refusal is None,
            "score": row.total if row.refusal is None else None, "scores": dict(row.scores),
            "plugin": row.refusal.plugin if row.refusal else "",
            "reasons": list(row.refusal.reasons) if row.refusal else [],
        }
        for row in found.nodes
    ]  # fmt: skip


def _why(row: Mapping[str, Any]) -> str:
    if not row["fits"]:
        return f"{row['plugin']}: {', '.join(row['reasons'])}"
    scores = ", ".join(f"{plugin} {score}" for plugin, score in row["scores"].items())
    return f"{'is here; ' if row['here'] else ''}{scores}"


def _content(found: PodExplanation) -> dict[str, Any]:
    return {
        "namespace": found.namespace, "name": found.name, "node": found.node, "phase": found.phase,
        "message": found.message, "schedulerSaid": found.said, "nominatedNode": found.nominated,
        "unseen": list(found.unseen), "nodes": _rows(found),
    }  # fmt: skip
