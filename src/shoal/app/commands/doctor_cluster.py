"""``shoal doctor cluster``: checks whether a Kubernetes cluster can join the fleet."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import Output
from shoal.cli.printers import Format, render

if TYPE_CHECKING:
    from shoal.app.findings import Finding
    from shoal.client import AccessConfig


def cluster(
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", help="kubeconfig of an administrator of the cluster; default $KUBECONFIG")
    ] = "",
    kube_context: Annotated[
        str, typer.Option("--kube-context", help="context in the kubeconfig; default: its current one")
    ] = "",
    namespaces: Annotated[
        str, typer.Option(metavar="A,B", help="check the rights of agents that may use only these namespaces")
    ] = "",
    image: Annotated[
        str, typer.Option(help="image of the agents, for admission policies that look at it")
    ] = "registry.invalid/shoal:check",
    output: Output = Format.TABLE,
) -> None:
    """Check whether a cluster can join the fleet: version, APIs, your rights there, admission policies, EndpointSlices
    and the clock. Nothing is changed; exit code 1 if something prevents it."""
    from shoal.app.commands.cluster_join import access_of, names_in

    access = access_of(kubeconfig, kube_context)
    found = asyncio.run(examined(access, kubeconfig or access.url, names_in(namespaces), image))
    typer.echo(render([asdict(each) for each in found], ("name", "verdict", "found", "fix"), output), nl=False)
    if any(each.verdict == "failed" for each in found):
        raise typer.Exit(1)


async def examined(access: AccessConfig, source: str, namespaces: tuple[str, ...], image: str) -> list[Finding]:
    from shoal.app.joining.examine import ClusterExamination
    from shoal.app.joining.manifests import draft, manifests
    from shoal.base.clock import RealClock
    from shoal.client import connect

    clock = RealClock()
    objects = manifests(draft(image, namespaces=namespaces))
    async with connect(access, clock=clock) as client:
        examination = ClusterExamination(client, objects, clock=clock, source=source, namespaces=namespaces)
        return [each async for each in examination.findings()]
