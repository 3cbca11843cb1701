"""What ``shoal doctor`` finds out about the fleet, from the control plane and the navigator of the context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from shoal import __version__
from shoal.app.findings import Finding, failed, ok, warning
from shoal.cli.contexts import Context
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.views import agent_name, app_name, gateway_name
from shoal.cli.printers import duration
from shoal.cli.rest import CannotReach, RequestRefused, Rest
from shoal.errors import ShoalError

_CLOCK_S = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Shown = Mapping[str, Any]


def fleet_checks(control: Context, navigator: Context | None, now: Callable[[], datetime]) -> Iterator[Finding]:
    """Every check of the fleet, as far as the control plane answers."""
    with closing(Rest(control)) as rest:
        try:
            reply = rest.request("GET", ROOT)
        except ShoalError as error:
            yield _no_answer(control, error)
            return
        yield ok("control plane", f"{control.url} answers {reply.body['you']['name']}")
        yield _clock(reply.headers.get("date", ""), now())
        yield _version(str(reply.body["version"]))
        status = rest.get(f"{ROOT}/status")
        agents = rest.get(f"{ROOT}/agents")["items"]
        yield from _or_ok("agents", _agents(agents), f"{len(agents)} joined")
        yield from _or_ok("clusters", _clusters(rest, agents), "each has an agent")
        yield from _or_ok("gateways", _gateways(status), f"{len(status.get('gateways') or ())} healthy")
        yield from _or_ok("apps", _apps(status), f"{len(status['apps'])} ready")
    if navigator is not None:
        yield from _navigator(navigator)


def _or_ok(name: str, found: Iterable[Finding], good: str) -> Iterator[Finding]:
    problems = list(found)
    yield from problems or [ok(name, good)]


def _no_answer(context: Context, error: ShoalError) -> Finding:
    name, first = "control plane", str(error).partition("\n")[0]
    if isinstance(error, RequestRefused) and error.status in (401, 403):
        made = f"shoal config set-context {context.name} --token -"
        return failed("token", f"{context.url} refuses it: {error.message}", f"ask for a new one, then run: {made}")
    if "not trusted" in first:
        fix = f"get the control plane's CA, then run: shoal config set-context {context.name} --ca FILE"
        return failed(name, first, fix)
    if isinstance(error, CannotReach) and urlsplit(context.url).hostname in _LOOPBACK:
        return warning(name, f"nothing answers at {context.url}", "run: shoal up, or choose a context with --context")
    fix = f"check that it runs, and the URL of context {context.name} (shoal config view)"
    return failed(name, first.partition("; start it")[0], fix)


def _clock(date: str, now: datetime) -> Finding:
    if not date:
        return ok("clock", "the control plane does not tell its time")
    apart_s = abs((now - parsedate_to_datetime(date)).total_seconds())
    shown = f"{duration(apart_s)} from the control plane's"
    if apart_s > _CLOCK_S:
        return failed(
            "clock", shown, "synchronise both clocks (chrony or systemd-timesyncd): tokens and leases need it"
        )
    return ok("clock", shown)


def _version(server: str) -> Finding:
    if server.split(".")[:2] != __version__.split(".")[:2]:
        fix = f"install version {server} of the command line, or upgrade the control plane (docs/guides/upgrade.md)"
        return warning("version", f"{__version__} here, {server} at the control plane", fix)
    return ok("version", server)


def _agents(agents: Iterable[Shown]) -> Iterator[Finding]:
    for agent in agents:
        name = agent_name(agent)
        if agent["state"] == "Lost":
            silent = duration(agent.get("lastHeartbeat"))
            fix = f"look at its log in cluster {agent['cluster']}, and start it again: shoal krane start"
            yield failed("agents", f"{name} is silent for {silent}", fix)
        for kind in agent.get("held") or ():
            yield failed("agents", f"{name} holds deletions of {kind} back", f"run: shoal agents confirm {name}")
        breakers = {str((each or {}).get("breaker") or "closed") for each in (agent.get("controllers") or {}).values()}
        if breakers - {"closed"}:
            rights = "join again, or, for an agent that was started by itself, shoal krane manifests"
            fix = f"check the API server of cluster {agent['cluster']}, and the agent's rights ({rights})"
            yield failed("agents", f"{name} cannot change its cluster", fix)


def _clusters(rest: Rest, agents: Iterable[Shown]) -> Iterator[Finding]:
    joined = {agent["cluster"] for agent in agents}
    for cluster in rest.get(f"{ROOT}/clusters", limit=500)["items"]:
        name, region = cluster["metadata"]["name"], cluster["spec"].get("region")
        if name not in joined:
            create = f"shoal token create --kind agent --cluster {name} --region {region} --to join.json"
            yield warning("clusters", f"{name} has no agent", f"run: {create}, then shoal krane start --join join.json")


def _gateways(status: Shown) -> Iterator[Finding]:
    for gateway in status.get("gateways") or ():
        if gateway["reason"]:
            name = gateway_name(gateway)
            yield failed("gateways", f"{name}: {gateway['reason']}", f"run: shoal describe sentinel {name}")
    for one in status.get("refused") or ():
        named = f"{str(one['kind']).lower()} {one['name']}"
        yield failed("gateways", f"Envoy refuses {named}: {one['message']}", f"mend it: shoal edit {named}")


def _apps(status: Shown) -> Iterator[Finding]:
    for app in status["apps"]:
        if app.get("state") not in ("Ready", "Stopped"):
            name = app_name(app)
            reason = app.get("reason") or app.get("summary")
            yield warning("apps", f"{name} is {app.get('state')}: {reason}", f"run: shoal why app {name}")


def _navigator(context: Context) -> Iterator[Finding]:
    with closing(Rest(context)) as rest:
        try:
            clusters = rest.get(f"{ROOT}/clusters")["items"]
        except ShoalError as error:
            shown = str(error).partition("; start it")[0]
            yield failed("navigator", shown, f"check that it runs, and the navigator of context {context.name}")
            return
    late = [
        failed("navigator", f"cluster {each['name']} is {each['freshness']}",
               f"check the edge of {each['name']}: its process, its token, its way to {context.url}")
        for each in clusters
        if each["freshness"] not in ("healthy", "initializing")
    ]  # fmt: skip
    yield from _or_ok("navigator", late, f"{len(clusters)} clusters, all fresh")
