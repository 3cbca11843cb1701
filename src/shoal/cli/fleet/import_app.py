"""``shoal import``: writes an App for a Deployment that runs in a cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.importing import ImportPlace, app_of
from shoal.cli.options import Output
from shoal.cli.printers import Format, document
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.cli.importing import ImportedApp

app = new_app("Write an App for a Deployment that runs in a cluster.")


class NotExpressible(ShoalError):
    """An App cannot say what the Deployment is."""


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
    output: Output = Format.YAML,
) -> None:
    """Write an App for a running Deployment with its Service and autoscaler, for `shoal apply -f`. Nothing in
    the cluster changes. What an App cannot say (volumes, a second container, variables from elsewhere) is listed, and
    nothing is written without --partial."""
    kind, slash, called = workload.partition("/")
    if not slash or not called or kind not in ("deployment", "deployments", "deploy", "deployment.apps"):
        raise ConfigError(f"workload is {workload!r}: use deployment/NAME")
    place = ImportPlace(project=project, environment=environment, region=region, name=name)
    made = asyncio.run(read_app(kubeconfig, kube_context, namespace, called, place))
    for note in made.notes:
        sys.stderr.write(f"note: {note}\n")
    if made.obstacles and not partial:
        listed = "\n".join(f"  {each}" for each in made.obstacles)
        raise NotExpressible(f"an App cannot say all of {workload}:\n{listed}\nTo write the rest: --partial")
    for obstacle in made.obstacles:
        sys.stderr.write(f"left out: {obstacle}\n")
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
    return app_of(deployment, place, services=services, autoscalers=autoscalers)
