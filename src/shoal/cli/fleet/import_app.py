"""``shoal import``: writes an App for a Deployment that runs in a cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.clock import RealClock
from shoal.cli.adopting import adopted_already, other_managers
from shoal.cli.apps import new_app
from shoal.cli.importing import ImportPlace, app_of
from shoal.cli.options import Output
from shoal.cli.printers import Format, document
from shoal.errors import ConfigError, ShoalError
from shoal.krane.deployments.adoptable import adopting_app, refusals, selector_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.cli.adopting import ImportedApp
    from shoal.kube.objects import Obj

app = new_app("Write an App for a Deployment that runs in a cluster.")


_DEPLOYMENTS = ("deployment", "deployments", "deploy", "deployment.apps")
_OTHERS = {
    "statefulset": " (instances of an App have no names and volumes of their own)",
    "daemonset": " (an App has a number of instances, not one on each node)",
    "replicaset": " (name the Deployment that made it)",
    "pod": " (name the Deployment that made it)",
}


class NotExpressible(ShoalError):
    """An App cannot say what the Deployment is."""


class NotAdoptable(ShoalError):
    """The Deployment cannot become a revision as it is."""


@app.command()
def import_(
    workload: Annotated[str, typer.Argument(metavar="deployment/NAME", help="what to import")],
    region: Annotated[str, typer.Option(help="region of the App")],
    project: Annotated[str, typer.Option("--project", "-p", help="project of the App")],
    environment: Annotated[str, typer.Option("--environment", "-e", help="environment of the App")],
    kubeconfig: Annotated[
        Path | None, typer.Option(help="kubeconfig of the cluster where it runs; default: kubectl's file")
    ] = None,
    kube_context: Annotated[str, typer.Option(help="context in the kubeconfig; default: the current one")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="default: that of the kubeconfig")] = "",
    name: Annotated[str, typer.Option(help="name of the App; default: that of the Deployment")] = "",
    partial: Annotated[
        bool, typer.Option("--partial", help="write the App also when it leaves out something that matters")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="the App's first revision is this Deployment: nothing restarts")
    ] = False,
    cluster: Annotated[
        str, typer.Option(help="with --adopt: the fleet's name of the cluster where it runs (`shoal get clusters`)")
    ] = "",
    output: Output = Format.YAML,
) -> None:
    """Write an App for a running Deployment with its Service and autoscaler, for `shoal apply -f`. Nothing in
    the cluster changes. What an App cannot say (volumes, a second container, variables from elsewhere) is listed, and
    nothing is written without --partial.

    With --adopt the first revision of the App *is* that Deployment: when the App is applied, its pods go on, and the
    next revision replaces them. What an App cannot say stays until then."""
    kind, slash, called = workload.partition("/")
    if not slash or not called or kind not in _DEPLOYMENTS:
        raise ConfigError(f"workload is {workload!r}: use deployment/NAME{_OTHERS.get(kind.rstrip('s'), '')}")
    if adopt != bool(cluster):
        raise ConfigError("--cluster is missing: --adopt needs the cluster where it runs" if adopt else
                          "--cluster is only for --adopt; without it the App gets instances of its own")  # fmt: skip
    place = ImportPlace(project=project, environment=environment, region=region, name=name, cluster=cluster)
    made = asyncio.run(read_app(kubeconfig, kube_context, namespace, called, place))
    for note in made.notes:
        sys.stderr.write(f"note: {note}\n")
    if made.obstacles and not partial:
        listed = "\n".join(f"  {each}" for each in made.obstacles)
        raise NotExpressible(f"an App cannot say all of {workload}:\n{listed}\nTo write the rest: --partial")
    for obstacle in made.obstacles:
        sys.stderr.write(f"left out{' from the next revision on' if adopt else ''}: {obstacle}\n")
    typer.echo(document(made.document, Format.YAML if output is Format.TABLE else output), nl=False)


async def read_app(kubeconfig: Path | None, context: str, namespace: str, name: str, place: ImportPlace) -> ImportedApp:
    from shoal.client import Scope, builtin, connect, load

    access = load(kubeconfig, context=context)
    where = namespace or access.namespace
    async with connect(access, clock=RealClock(), user_agent="shoal-import") as client:
        deployment = await client.of(builtin("deployments", "apps")).get(name, where)
        scope = Scope(namespace=where)
        services = (await client.of(builtin("services")).list(scope)).items
        autoscalers = (await client.of(builtin("horizontalpodautoscalers", "autoscaling")).list(scope)).items
        made = app_of(deployment, place, services=services, autoscalers=autoscalers)
        if place.cluster:
            selector = made.document["spec"]["topology"][0]["adopt"]["selector"]
            chosen = Scope(namespace=where, label_selector=selector_text(selector))
            pods = (await client.of(builtin("pods")).list(chosen)).items
            check_adoption(deployment, place, made, pods, autoscalers)
    return made


def check_adoption(
    deployment: Obj, place: ImportPlace, made: ImportedApp, pods: Sequence[Obj], autoscalers: Sequence[Obj]
) -> None:
    """``NotAdoptable`` with every reason; else adds what the user should know."""
    spec = made.document["spec"]
    row, about = spec["topology"][0], deployment["metadata"]
    app = f"{place.project}/{place.environment}/{made.document['metadata']['name']}"
    by = adopting_app(deployment)
    found = refusals(
        deployment, pods, autoscalers, image=spec["image"], autoscaler=row["adopt"].get("autoscaler", ""),
        is_scaled="autoscaling" in row,
    )  # fmt: skip
    if again := adopted_already(deployment, app, by):
        found.append(again)
    if found:
        listed = "\n".join(f"  {each}" for each in found)
        raise NotAdoptable(f"Deployment {about['name']} cannot be adopted:\n{listed}")
    made.notes.extend(other_managers(deployment))
    if by:
        made.notes.append(f"App {app} has adopted it already; applied again, this changes nothing")
    made.notes.append(
        f"environment {place.environment} of {place.project} must have spec.namespace {about['namespace']}"
    )
