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
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shoal.app import welcome
from shoal.app.authorities import Trusting, follow_authorities
from shoal.app.children import STOP_BUDGET_S, Child, Children, Stopped
from shoal.app.config import LOOPBACK
from shoal.app.examples import HELLO
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.forking import ForkServer
from shoal.app.home import ENDPOINTS, UP_LOCK
from shoal.app.introduction import introduce
from shoal.app.kubectl import kubectl_word
from shoal.app.pod_forks import PodForks
from shoal.app.ports import any_free
from shoal.app.start_display import PlainDisplay, StartDisplay, shown
from shoal.app.up_options import UpOptions, cluster_of, remember_regions
from shoal.base.clock import Clock, RealClock
from shoal.base.files import holder_of, write_private
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import run_all, wait_first
from shoal.cli.contexts import Context, save_context
from shoal.cli.fleet.open_page import new_link
from shoal.cli.rest import CannotReach, RequestRefused, Rest
from shoal.node.forks.client import VARIABLE

log = get_logger("up")

CONTEXT = "local"
_STEPS = "shoal.app.up_steps"  # of the start, in processes of their own
_JOIN_NAVIGATOR, _APPLY_SAMPLES = f"{_STEPS}:join_navigator", f"{_STEPS}:apply_samples"
_WELCOME_S, _TICK_S = 40.0, 0.2  # how long, and how often, to look for the demo's gateways


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
    command += ["--page-port", "0"]
    return command if options.port is None else [*command, "--port", str(options.port)]


def cluster_command(options: UpOptions, region: str) -> list[str]:
    folder = options.cluster_dir(region)
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(folder), "--stop-on-eof"]
    return [*command, "--join", str(folder / "join.json"), "--edge", str(folder / "edge.json"), "--sharding"]


def navigator_command(options: UpOptions) -> list[str]:
    folder = str(options.navigator_dir)
    command = [sys.executable, "-m", "shoal", "navigator", "manager", "--dir", folder, "--stop-on-eof"]
    return [*command, "--control-dir", str(options.control_dir)]


async def run_up(
    options: UpOptions,
    say: Callable[[str], object],
    *,
    deps: UpDeps | None = None,
    display: StartDisplay | None = None,
) -> None:
    """Start all, print the addresses, wait for a signal, stop all. ``say`` prints a line; without a ``display`` it also
    tells what starts."""
    display = display or PlainDisplay(say, RealClock())
    deps = deps or UpDeps(control_command, cluster_command, introduce, navigator_command, welcomes=not options.empty)
    if options.port == 0:  # decided once, so that a control plane that is started again has the same
        options = replace(options, port=any_free(LOOPBACK))
    make_private_dir(options.control_dir)
    for region in options.regions:
        make_private_dir(options.cluster_dir(region))
    with DirectoryLock(options.dir / UP_LOCK):
        stop = _stop_event()
        fork_server = ForkServer()
        # pods of one cluster must not see the others
        pod_forks = PodForks(options.dir)
        more = {"SHOAL_HOME": str(options.dir), VARIABLE: str(pod_forks.socket)}
        children = Children(stop, RealClock(), environ=more, spawn=fork_server.spawn)
        endpoints = options.dir / ENDPOINTS
        try:
            await until_ended(options, RealClock(), stop)
            remember_regions(options)
            await fork_server.start()
            await pod_forks.start()
            started = await _start_all(options, deps, children, fork_server, display)
            context = _with_navigator(_context(options, started.control.url), options, started.navigator)
            save_context(options.dir, context)

            def write_endpoints() -> None:
                write_private(
                    endpoints, render_endpoints(options, started.control, started.navigator, started.clusters)
                )

            write_endpoints()
            about_demo: list[str] = []
            if deps.welcomes:
                with shown(display, "the demo app"):
                    about_demo, _ = await asyncio.gather(
                        asyncio.to_thread(_welcome, Rest(context), options, stop),
                        fork_server.call(_APPLY_SAMPLES, str(options.dir), options.regions),
                    )
            await fork_server.end()  # it would cost 30 MB for a child that may have to be started again
            display.close()
            for line in (*guide(options, started.control.url), *about_demo, *page_lines(Rest(context))):
                say(line)
            say("ready")
            loops = {"authorities": partial(follow_authorities, _trusting(options), RealClock())}
            if deps.welcomes:
                loops["demo requests"] = partial(_send_trickle, context)
            await wait_first(
                children.keep(say, write_endpoints),
                *(supervise(name, run, clock=RealClock()) for name, run in loops.items()),
            )
        except Stopped:
            return
        finally:
            display.close()
            endpoints.unlink(missing_ok=True)
            await children.end()
            await fork_server.end()
            await pod_forks.end()


@dataclass(frozen=True, slots=True)
class StartedChildren:
    """All of them are ready."""

    control: Child
    navigator: Child | None
    clusters: dict[str, Child]  # by region


async def _start_all(
    options: UpOptions, deps: UpDeps, children: Children, forks: ForkServer, display: StartDisplay
) -> StartedChildren:
    """Start control plane and navigator beside each other, then the clusters, which need the join files of both."""
    started: dict[str, Child] = {}

    async def control() -> None:
        log = options.control_dir / "control.log"
        with shown(display, "the control plane"):
            child = started[""] = await children.start("control plane", deps.control(options), log)
            rest = Rest(_context(options, child.url))
            await asyncio.to_thread(deps.introduce, rest, options)
            if deps.welcomes:
                await asyncio.to_thread(_apply_demo, rest, options)

    async def cluster(region: str) -> None:
        log = options.cluster_dir(region) / "cluster.log"
        name = f"cluster of region {region}"
        with shown(display, f"the {name}"):
            started[region] = await children.start(name, deps.cluster(options, region), log, wave=1)

    found: list[Child | None] = []

    async def navigator() -> None:
        if deps.navigator is None:
            found.append(None)
            return
        with shown(display, "the navigator"):
            found.append(await _start_navigator(options, deps.navigator(options), children, forks))

    await _beside({"control plane": control(), "navigator": navigator()})
    await _beside({region: cluster(region) for region in options.regions})
    return StartedChildren(started.pop(""), found[0], {region: started[region] for region in options.regions})


async def until_ended(options: UpOptions, clock: Clock, stop: asyncio.Event) -> None:
    """Wait for children of an `up` that was killed, which end by themselves; one that does not is named when its
    successor starts."""
    locks = [options.control_dir / "control.lock", options.navigator_dir / "manager.lock"]
    locks += [options.cluster_dir(region) / "cluster.lock" for region in options.regions]
    deadline = clock.monotonic() + STOP_BUDGET_S
    while any(holder_of(lock) for lock in locks) and clock.monotonic() < deadline and not stop.is_set():
        await clock.sleep(_TICK_S)


async def _beside(starts: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """All of them; where several fail, the error of one: the others failed beside it or for the same reason."""
    try:
        await run_all(starts)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _trusting(options: UpOptions) -> Trusting:
    folders = [options.cluster_dir(region) for region in options.regions]
    return Trusting(
        control=options.control_dir, navigator=options.navigator_dir, agents=[each / "join.json" for each in folders],
        edges=[each / "edge.json" for each in folders], home=options.dir, context=CONTEXT,
    )  # fmt: skip


async def _start_navigator(options: UpOptions, command: Sequence[str], children: Children, forks: ForkServer) -> Child:
    make_private_dir(options.navigator_dir)
    child = await children.start("navigator", command, options.navigator_dir / "manager.log")
    await forks.call(_JOIN_NAVIGATOR, str(options.dir), options.regions, child.url)
    return child


def _welcome(rest: Rest, options: UpOptions, stop: asyncio.Event) -> list[str]:
    """The addresses of the demo, once its gateways are ready."""
    ticks = iter(range(int(_WELCOME_S / _TICK_S)))

    def pause() -> bool:
        time.sleep(_TICK_S)
        return not stop.is_set() and next(ticks, None) is not None

    try:
        return welcome.lines(welcome.until_ready(rest, options.regions, pause))
    except (RequestRefused, CannotReach) as error:
        return [f"The addresses of the demo app are not known: {error}"]
    finally:
        rest.close()


async def _send_trickle(context: Context) -> None:
    """Requests to the demo app, so that the first visit of the page finds traffic."""
    from shoal.app.demo.trickle import send_trickle

    def ask() -> Mapping[str, str]:
        rest = Rest(context)
        try:
            return welcome.addresses(rest)
        except (RequestRefused, CannotReach):
            return {}
        finally:
            rest.close()

    await send_trickle(lambda: asyncio.to_thread(ask), welcome.HOST, RealClock())


def page_lines(rest: Rest) -> list[str]:
    """The link to the page that logs in."""
    try:
        link = new_link(rest)
    except (RequestRefused, CannotReach) as error:
        return [f"There is no link to the page: {error}", ""]
    finally:
        rest.close()
    again = f"{_shoal_word()} open"
    return ["The page, with a link that logs in once and within two minutes:", "", f"  {link}", "",
            f"Another link: {again}", ""]  # fmt: skip


def _apply_demo(rest: Rest, options: UpOptions) -> None:
    """Before there are clusters: they find it when they join."""
    try:
        welcome.ensure(rest, options.regions)
    except (RequestRefused, CannotReach) as error:
        log.warning("the demo app could not be applied", reason=str(error))
    finally:
        rest.close()


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


def guide(options: UpOptions, url: str) -> list[str]:
    """The first commands to try, printed at the end of the start."""
    shoal = _shoal_word()
    if options.dir != Path.home() / ".shoal" and os.environ.get("SHOAL_HOME") != str(options.dir):
        shoal = f"SHOAL_HOME={options.dir} {shoal}"
    first = next(iter(options.regions))
    kubectl = f"{kubectl_word()} --kubeconfig {options.cluster_dir(first) / 'kubeconfig'}"
    examples = [] if Path(HELLO).is_file() else [f"  {shoal} examples"]  # of the guides, where there is no checkout
    return [
        "",
        f"A control plane runs at {url} (API: {url}/docs), with the regions {', '.join(options.regions)}. Try:",
        "",
        *examples,
        f"  {shoal} apply -f {HELLO}",
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
        found = shutil.which("shoal")
        return "shoal" if found and Path(found).resolve() == beside.resolve() else str(beside)


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
