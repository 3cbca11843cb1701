"""``shoal up``: the whole system as processes of this machine: a control plane, a navigator, and per region a cluster
with an agent, a navigator edge and a shard manager in its process.

    DIR/control/                the control plane
    DIR/navigator/              the navigator's manager
    DIR/clusters/REGION-1/      the cluster of a region, with its agent, edge and shard manager
    DIR/config.yaml             the context for other commands
    DIR/endpoints.json          the running processes and their addresses, for programs
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shoal.app import welcome
from shoal.app.authorities import Trusting, follow_authorities
from shoal.app.children import Child, Children, Stopped
from shoal.app.config import LOOPBACK
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.home import ENDPOINTS, UP_LOCK
from shoal.app.kubectl import kubectl_word
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.supervision import supervise
from shoal.base.tasks import wait_first
from shoal.cli.contexts import Context, save_context
from shoal.cli.rest import CannotReach, RequestRefused, Rest
from shoal.errors import ConfigError

REGIONS = ("eu", "us")
CONTEXT = "local"
SHARD = "default"
_WELCOME_S, _TICK_S = 40.0, 0.2  # how long, and how often, to look for the demo's gateways
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The flags of ``shoal up``."""

    dir: Path
    regions: tuple[str, ...] = REGIONS
    port: int | None = None  # of the control plane
    empty: bool = False

    def __post_init__(self) -> None:
        if not self.regions:
            raise ConfigError(f"regions is empty: use for example {','.join(REGIONS)}")
        for name in self.regions:
            if not _REGION.fullmatch(name):
                raise ConfigError(f"regions has {name!r}: use up to 32 small letters, digits and dashes")
        if len(set(self.regions)) != len(self.regions):
            raise ConfigError(f"regions is {','.join(self.regions)!r}: name each region once")

    @property
    def control_dir(self) -> Path:
        return self.dir / "control"

    @property
    def navigator_dir(self) -> Path:
        return self.dir / "navigator"

    def cluster_dir(self, region: str) -> Path:
        return self.dir / "clusters" / cluster_of(region)


def cluster_of(region: str) -> str:
    """The name of a region's only cluster."""
    return f"{region}-1"


@dataclass(frozen=True, slots=True)
class UpDeps:
    """The command lines of the children, and the calls to the control plane between them; tests replace them."""

    control: Callable[[UpOptions], Sequence[str]]
    cluster: Callable[[UpOptions, str], Sequence[str]]
    introduce: Callable[[Rest, UpOptions], None]
    navigator: Callable[[UpOptions], Sequence[str]] | None = None
    welcomes: bool = True  # with the demo


def control_command(options: UpOptions) -> list[str]:
    command = [sys.executable, "-m", "shoal", "control", "start", "--dir", str(options.control_dir), "--stop-on-eof"]
    return command if options.port is None else [*command, "--port", str(options.port)]


def cluster_command(options: UpOptions, region: str) -> list[str]:
    folder = options.cluster_dir(region)
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(folder), "--stop-on-eof"]
    return [*command, "--join", str(folder / "join.json"), "--edge", str(folder / "edge.json"), "--sharding"]


def navigator_command(options: UpOptions) -> list[str]:
    folder = str(options.navigator_dir)
    command = [sys.executable, "-m", "shoal", "navigator", "manager", "--dir", folder, "--stop-on-eof"]
    return [*command, "--control-dir", str(options.control_dir)]


async def run_up(options: UpOptions, say: Callable[[str], object], *, deps: UpDeps | None = None) -> None:
    """Start all, print the addresses, wait for a signal, stop all. ``say`` prints a line."""
    deps = deps or UpDeps(control_command, cluster_command, introduce, navigator_command, welcomes=not options.empty)
    if options.port == 0:  # decided once, so that a control plane that is started again has the same
        options = replace(options, port=any_free(LOOPBACK))
    make_private_dir(options.control_dir)
    for region in options.regions:
        make_private_dir(options.cluster_dir(region))
    with DirectoryLock(options.dir / UP_LOCK):
        stop = _stop_event()
        children = Children(stop, RealClock(), home=options.dir)  # pods of one cluster must not see the others
        endpoints = options.dir / ENDPOINTS
        try:
            say("starting the control plane")
            control = await children.start("control plane", deps.control(options), options.control_dir / "control.log")
            context = _context(options, control.url)
            rest = Rest(context)
            await asyncio.to_thread(deps.introduce, rest, options)
            navigator = await _start_navigator(options, deps, children, say)
            context = _with_navigator(context, options, navigator)
            clusters: dict[str, Child] = {}
            for region in options.regions:
                say(f"starting region {region}")
                log = options.cluster_dir(region) / "cluster.log"
                clusters[region] = await children.start(
                    f"cluster of region {region}", deps.cluster(options, region), log
                )
            save_context(options.dir, context)

            def write_endpoints() -> None:
                write_private(endpoints, render_endpoints(options, control, navigator, clusters))

            write_endpoints()
            shown = await asyncio.to_thread(_welcome, rest, options, stop) if deps.welcomes else []
            if deps.welcomes:
                await _samples(options)
            for line in (*guide(options, control.url, clusters), *shown):
                say(line)
            say("ready")
            authorities = partial(follow_authorities, _trusting(options), RealClock())
            await wait_first(
                children.keep(say, write_endpoints), supervise("authorities", authorities, clock=RealClock())
            )
        except Stopped:
            return
        finally:
            endpoints.unlink(missing_ok=True)
            await children.end()


def _trusting(options: UpOptions) -> Trusting:
    folders = [options.cluster_dir(region) for region in options.regions]
    return Trusting(
        control=options.control_dir, navigator=options.navigator_dir, agents=[each / "join.json" for each in folders],
        edges=[each / "edge.json" for each in folders], home=options.dir, context=CONTEXT,
    )  # fmt: skip


async def _start_navigator(
    options: UpOptions, deps: UpDeps, children: Children, say: Callable[[str], object]
) -> Child | None:
    if deps.navigator is None:
        return None
    from shoal.app.fleet.config import NAVIGATOR
    from shoal.app.navigator.joining import ensure_access, ensure_join_files
    from shoal.control.domain.access import DEFAULT_WORKSPACE

    say("starting the navigator")
    make_private_dir(options.navigator_dir)
    child = await children.start("navigator", deps.navigator(options), options.navigator_dir / "manager.log")
    edges = {cluster_of(region): (region, options.cluster_dir(region) / "edge.json") for region in options.regions}
    await ensure_join_files(options.navigator_dir, child.url, edges)
    await ensure_access(options.navigator_dir, child.url, options.control_dir / NAVIGATOR, DEFAULT_WORKSPACE)
    return child


async def _samples(options: UpOptions) -> None:
    from shoal.app.demo.samples import ensure_samples

    kubeconfigs = {region: options.cluster_dir(region) / "kubeconfig" for region in options.regions}
    await ensure_samples(kubeconfigs, clock=RealClock())


def introduce(rest: Rest, options: UpOptions) -> None:
    """Tell the control plane of the regions and their clusters, and get the agents' join files where they are missing
    or no longer good."""
    for region in options.regions:
        cluster = cluster_of(region)
        _ensure(rest, f"/api/v1/regions/{region}", _document("Region", region, {}))
        _ensure(rest, f"/api/v1/clusters/{cluster}", _document("Cluster", cluster, {"region": region}))
        _ensure_join_file(rest, options.cluster_dir(region) / "join.json", cluster, region)
    rest.close()


def _welcome(rest: Rest, options: UpOptions, stop: asyncio.Event) -> list[str]:
    """Apply the demo, and print its addresses."""
    ticks = iter(range(int(_WELCOME_S / _TICK_S)))

    def pause() -> bool:
        time.sleep(_TICK_S)
        return not stop.is_set() and next(ticks, None) is not None

    try:
        welcome.ensure(rest, options.regions)
        return welcome.lines(welcome.until_ready(rest, options.regions, pause))
    except (RequestRefused, CannotReach) as error:
        return [f"The demo app could not be applied: {error}"]
    finally:
        rest.close()


def _ensure(rest: Rest, path: str, document: dict[str, Any]) -> None:
    """Create it unless it exists; later changes by the user stay."""
    try:
        rest.request("PUT", path, document, headers={"If-None-Match": "*"})
    except RequestRefused as refused:
        if refused.status != 412:
            raise


def _ensure_join_file(rest: Rest, path: Path, cluster: str, region: str) -> None:
    if path.exists():
        held = json.loads(path.read_bytes())
        listed = {token["name"]: token for token in rest.get("/api/v1/tokens", kind="agent")["items"]}
        found = listed.get(f"agent-{cluster}")
        good = found is not None and not found.get("revoked")
        if good and rest.context.url in (held["url"], *held.get("urls", ())):
            return
        if good:
            moved = {**held, "url": rest.context.url, "ca": rest.context.ca}
            if "urls" in held:
                moved["urls"] = [rest.context.url if url == held["url"] else url for url in held["urls"]]
            write_private(path, json.dumps(moved).encode())
            return
    body = {"kind": "agent", "name": f"agent-{cluster}", "cluster": cluster, "region": region, "shard": SHARD}
    made = rest.request("POST", "/api/v1/tokens", body).body
    write_private(path, json.dumps(made["join"], indent=2).encode())


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _context(options: UpOptions, url: str) -> Context:
    token = (options.control_dir / "admin.token").read_text().strip()
    return Context(CONTEXT, url, token, (options.control_dir / "pki" / "ca.crt").read_text())


def _with_navigator(context: Context, options: UpOptions, child: Child | None) -> Context:
    if child is None:
        return context
    folder = options.navigator_dir
    token, ca = (folder / "admin.token").read_text().strip(), (folder / "pki" / "ca.crt").read_text()
    return replace(context, navigator=child.url, navigator_token=token, navigator_ca=ca)


def render_endpoints(options: UpOptions, control: Child, navigator: Child | None, clusters: dict[str, Child]) -> bytes:
    """The content of ``endpoints.json``: the running processes and their addresses, for programs."""
    listed = [
        {
            "name": cluster_of(region),
            "region": region,
            "url": child.url,
            "kubeconfig": str(options.cluster_dir(region) / "kubeconfig"),
            "pid": child.process.pid,
        }
        for region, child in clusters.items()
    ]
    about = {
        "url": control.url,
        "ca": str(options.control_dir / "pki" / "ca.crt"),
        "token": str(options.control_dir / "admin.token"),
        "pid": control.process.pid,
    }
    found: dict[str, Any] = {"pid": os.getpid(), "control": about}
    if navigator is not None:
        folder = options.navigator_dir
        found["navigator"] = {
            "url": navigator.url,
            "ca": str(folder / "pki" / "ca.crt"),
            "token": str(folder / "admin.token"),
            "pid": navigator.process.pid,
        }
    return json.dumps({**found, "clusters": listed}, indent=2).encode() + b"\n"


def guide(options: UpOptions, url: str, clusters: dict[str, Child]) -> list[str]:
    """The first commands to try, printed at the end of the start."""
    shoal = _shoal_word()
    if options.dir != Path.home() / ".shoal" and os.environ.get("SHOAL_HOME") != str(options.dir):
        shoal = f"SHOAL_HOME={options.dir} {shoal}"
    first = next(iter(options.regions))
    kubectl = f"{kubectl_word()} --kubeconfig {options.cluster_dir(first) / 'kubeconfig'}"
    return [
        "",
        f"A control plane runs at {url} (API: {url}/docs), with the regions {', '.join(options.regions)}. Try:",
        "",
        f"  {shoal} apply -f examples/hello.yaml",
        f"  {shoal} status -w",
        f"  {shoal} describe app hello",
        f'  {shoal} query "pods where not ready"',
        f"  {shoal} lint",
        f"  {kubectl} get pods,shardinstances -A",
        "",
    ]


def _shoal_word() -> str:
    beside = Path(sys.executable).with_name("shoal")
    try:
        return str(beside.relative_to(Path.cwd()))
    except ValueError:
        return str(beside)


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
