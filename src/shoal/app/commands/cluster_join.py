"""``shoal cluster join`` and ``leave``: make a Kubernetes cluster a part of the fleet, and take it out again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.contexts import current_context, navigator_context, shoal_home
from shoal.cli.durations import seconds_of
from shoal.cli.options import ContextName
from shoal.cli.rest import Rest
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.app.joining.fleet import FleetAddresses, FleetSide
    from shoal.app.joining.manifests import AgentPlan
    from shoal.app.joining.service import ClusterFacts
    from shoal.client import AccessConfig

_TIMEOUT = "3m"

_Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the cluster in the fleet")]
_Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", help="kubeconfig of an administrator of the cluster; default $KUBECONFIG")
]
_KubeContext = Annotated[
    str, typer.Option("--kube-context", help="context in the kubeconfig; default: its current one")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """The options of `shoal cluster join` from which the plan is made."""

    image: str
    region: str
    namespaces: tuple[str, ...]
    addresses: FleetAddresses
    https_proxy: str
    no_proxy: str
    pull_secret: str
    sharding: bool
    edge: bool
    replicas: int


def join(
    name: _Name,
    kubeconfig: _Kubeconfig = "",
    kube_context: _KubeContext = "",
    image: Annotated[
        str, typer.Option(metavar="REGISTRY/NAME:TAG", help="image of Shoal in a registry of yours; required")
    ] = "",
    region: Annotated[
        str, typer.Option(help="region of the cluster; default: the region label that all its nodes have")
    ] = "",
    namespaces: Annotated[
        str, typer.Option(metavar="A,B", help="the only namespaces in which apps may run; they must exist")
    ] = "",
    advertise_url: Annotated[
        list[str] | None,
        typer.Option(
            help="URL at which the cluster reaches the control plane or a relay, preferred first; may be repeated; "
            "default: those of the control plane"
        ),
    ] = None,
    navigator_url: Annotated[
        str, typer.Option(help="URL at which the cluster reaches the navigator; default: that of the context")
    ] = "",
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA certificates to trust too, for example of a proxy or relay")
    ] = None,
    https_proxy: Annotated[
        str, typer.Option(help="HTTP proxy between the cluster and the fleet, http://HOST:PORT")
    ] = "",
    no_proxy: Annotated[str, typer.Option(help="hosts that the agents reach without the proxy, as in NO_PROXY")] = "",
    pull_secret: Annotated[
        str, typer.Option(help="Secret in namespace shoal-system with the registry's credentials")
    ] = "",
    replicas: Annotated[int, typer.Option(help="pods of the agent: one acts, the others stand by")] = 2,
    sharding: Annotated[bool, typer.Option("--sharding/--no-sharding", help="run a shard manager too")] = True,
    edge: Annotated[bool, typer.Option("--edge/--no-edge", help="run an edge of the navigator too")] = True,
    print_: Annotated[
        bool, typer.Option("--print", help="print the manifests, with their tokens, instead of applying them")
    ] = False,
    timeout: Annotated[str, typer.Option(help="how long to wait for the agents, for example 5m")] = _TIMEOUT,
    context: ContextName = "",
) -> None:
    """Make a Kubernetes cluster a part of the fleet: create its tokens, apply the rights, the join files and the
    Deployments of its agents, and wait until they have joined. Joining again repairs and upgrades."""
    from shoal.app.joining.manifests import check_image

    check_image(image)
    timeout_s = float(seconds_of("timeout", timeout))
    addresses = _addresses(advertise_url, navigator_url, ca)
    options = JoinOptions(
        image=image, region=region, namespaces=names_in(namespaces), addresses=addresses, https_proxy=https_proxy,
        no_proxy=no_proxy, pull_secret=pull_secret, sharding=sharding, edge=edge, replicas=replicas,
    )  # fmt: skip
    with _fleet(context, edge=edge) as fleet:
        if print_:
            _print(name, options, fleet)
        else:
            asyncio.run(_join(name, options, fleet, access_of(kubeconfig, kube_context), kubeconfig, timeout_s))


def leave(
    name: _Name,
    kubeconfig: _Kubeconfig = "",
    kube_context: _KubeContext = "",
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="also remove the gateways, Shoal's custom resource definitions and what they hold"
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="even if apps run there; they keep running without an agent")
    ] = False,
    context: ContextName = "",
) -> None:
    """Take a cluster out of the fleet: revoke its tokens, and remove agents, rights and join files from it. The cluster
    must have no apps any more. Custom resource definitions stay, unless --purge is given."""
    with _fleet(context, edge=True) as fleet:
        access = access_of(kubeconfig, kube_context)
        for line in fleet.remove(name, force=force):
            typer.echo(line)
        asyncio.run(_leave(access, purge=purge))
        for line in fleet.forget(name):
            typer.echo(line)
    typer.echo(f"cluster {name} has left the fleet")


async def _join(
    name: str, options: JoinOptions, fleet: FleetSide, access: AccessConfig, kubeconfig: str, timeout_s: float
) -> None:
    from shoal.app.joining.manifests import draft, manifests
    from shoal.app.joining.service import JoinWatch, apply_all, examine, read_facts, remove_others
    from shoal.base.clock import RealClock
    from shoal.client import TransportError, connect
    from shoal.errors import ApiError

    clock = RealClock()
    async with connect(access, clock=clock, field_manager="shoal-cluster-join") as client:
        try:
            facts = await read_facts(client, access.url)
        except (TransportError, ApiError):
            from shoal.app.joining.service import ClusterFacts

            facts = ClusterFacts()  # the examination tells why the cluster does not answer
        source = kubeconfig or access.url
        wanted = draft(options.image, namespaces=options.namespaces, edge=options.edge, sharding=options.sharding)
        await examine(client, wanted, clock=clock, source=source, say=typer.echo)
        typer.echo("the cluster can be joined")
        plan = _plan(name, options, fleet, facts)
        objects = manifests(plan)
        await apply_all(client, objects)
        for removed in await remove_others(client, plan):
            typer.echo(f"{removed} of an earlier join removed")
        typer.echo(f"{len(objects)} objects applied; waiting for {', '.join(plan.deployments)}")
        await JoinWatch(client, fleet, name, plan, clock=clock, say=typer.echo).wait(timeout_s)
    typer.echo(f"cluster {name} has joined region {plan.krane['region']}")


async def _leave(access: AccessConfig, *, purge: bool) -> None:
    from shoal.app.joining.leaving import remove_agents
    from shoal.base.clock import RealClock
    from shoal.client import connect

    clock = RealClock()
    async with connect(access, clock=clock) as client:
        await remove_agents(client, purge=purge, clock=clock, say=typer.echo)


def _print(name: str, options: JoinOptions, fleet: FleetSide) -> None:
    import yaml

    from shoal.app.joining.manifests import manifests
    from shoal.app.joining.service import ClusterFacts

    plan = _plan(name, options, fleet, ClusterFacts())
    typer.echo(yaml.safe_dump_all(manifests(plan), sort_keys=False, explicit_start=True), nl=False)
    typer.echo("note: the Secret in this output has the cluster's tokens", err=True)


def _plan(name: str, options: JoinOptions, fleet: FleetSide, facts: ClusterFacts) -> AgentPlan:
    from shoal.app.joining.fleet import loopback_urls

    region = fleet.region(name, options.region) or facts.region
    if not region:
        raise ConfigError("region is missing: the nodes have no common region label; name the region with --region")
    krane = fleet.agent_join(name, region, options.addresses)
    edge = fleet.edge_join(name, region, options.addresses)
    if options.edge and edge is None:
        typer.echo("note: the context has no navigator, so the cluster gets no edge", err=True)
    given = options.addresses
    local = loopback_urls([None if given.control else krane, None if given.navigator else edge])
    if local and not facts.is_local:
        raise ConfigError(
            f"the join files name {', '.join(local)}, which only this machine reaches: start the control plane and the "
            "navigator with a public address (shoal control start --advertise-url https://HOST:PORT), or give "
            "--advertise-url and --navigator-url"
        )
    return _made(options, krane, edge, facts.api_ports)


def _made(
    options: JoinOptions, krane: dict[str, object], edge: dict[str, object] | None, ports: tuple[int, ...]
) -> AgentPlan:
    from shoal import __version__
    from shoal.app.joining.manifests import API_PORTS, AgentPlan, ProxyVariables

    return AgentPlan(
        image=options.image, krane=krane, edge=edge, namespaces=options.namespaces, sharding=options.sharding,
        replicas=options.replicas, proxy=ProxyVariables(https_proxy=options.https_proxy, no_proxy=options.no_proxy),
        api_ports=ports or API_PORTS, pull_secret=options.pull_secret, version=__version__,
    )  # fmt: skip


@contextmanager
def _fleet(context: str, *, edge: bool) -> Iterator[FleetSide]:
    from shoal.app.joining.fleet import FleetSide

    home = shoal_home()
    control = Rest(current_context(home, context))
    try:
        navigator = Rest(navigator_context(home, context)) if edge else None
    except ConfigError:
        navigator = None
    try:
        yield FleetSide(control, navigator)
    finally:
        control.close()
        if navigator is not None:
            navigator.close()


def access_of(kubeconfig: str, kube_context: str) -> AccessConfig:
    """The cluster to be joined. kubectl's default file is not used: a wrong cluster would be joined too easily."""
    from shoal.client import load

    if not kubeconfig and not os.environ.get("KUBECONFIG"):
        raise ConfigError("kubeconfig is missing: name the cluster's kubeconfig with --kubeconfig, or set KUBECONFIG")
    return load(kubeconfig or None, context=kube_context)


def names_in(text: str) -> tuple[str, ...]:
    """The names in ``a,b``, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _addresses(urls: list[str] | None, navigator: str, ca: Path | None) -> FleetAddresses:
    from shoal.app.joining.fleet import FleetAddresses

    try:
        text = ca.expanduser().read_text() if ca is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"ca is {str(ca)!r}: it cannot be read: {error}") from None
    return FleetAddresses(control=tuple(dict.fromkeys(urls or ())), navigator=navigator, ca=text)
