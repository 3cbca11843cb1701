"""Gateways: what ours costs beside bare Envoy, what each policy costs, and how fast one endpoint of 10 000 changes.

    PYTHONPATH=src python bench/sentinel_bench.py [speed traces tail policies beside many]

Load comes from Debian's wrk and, where a rate is given, h2load. Every gateway has one thread, one CPU and the same
instance behind it; load and instance stand on another CPU. What is compared runs in turns, since machines are noisy,
and the best of the rounds counts; for the bar of bare Envoy it is the median of what each round compares, of up to
three attempts with new processes. Beside requests/s stands the CPU time that a request takes, which noise changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from gateways import (
    HOST,
    LABELS,
    SLICES,
    Gateway,
    Sentinel,
    bare_envoy,
    cpu_s,
    dutiful_envoy,
    endpoints,
    haproxy,
    instance,
    missing,
    nginx,
    on_last_cpu,
    policy,
    route,
    sentinel,
)

from shoal.client import ResourceType, builtin
from shoal.kube.objects import Obj
from shoal.testing.databases import redis_server
from shoal.testing.traces import collector
from shoal.testing.waiting import eventually_blocking

ROUNDS, PAIRS, RUN_S, CONNECTIONS = 12, 24, 1, 32
RATE_BAR, KEY_BAR, P99_BAR, LOAD = 0.95, 0.80, 1.1, 0.70
DEPLOYMENTS, EACH, CHANGES, ATTEMPTS = 1000, 10, 40, 3
VISIBLE_BAR_MS, CPU_BAR_MS = 100.0, 5.0
KEY = "sk_0123456789abcdef0123"
PARTS = ("speed", "traces", "tail", "policies", "beside", "many")


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway as it is asked."""

    name: str
    gateway: Gateway
    host: str = "plain.example"
    headers: Sequence[str] = ()
    may_refuse: bool = False  # what has to ask others gives up after 20 ms, which a busy machine may take


@dataclass(slots=True)
class Figures:
    """Of several runs; the best count."""

    rates: list[float] = field(default_factory=list)
    costs_us: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def rate(self) -> float:
        return max(self.rates)

    @property
    def cost_us(self) -> float:
        return min(self.costs_us)


def in_turns(targets: Sequence[Target], run: Callable[[Target, Figures], None], rounds: int) -> dict[str, Figures]:
    found = {target.name: Figures() for target in targets}
    for turn in range(rounds):
        for target in targets[:: -1 if turn % 2 else 1]:
            run(target, found[target.name])
    return found


def at_full_speed(target: Target, figures: Figures) -> None:
    before = cpu_s(target.gateway.pid)
    headers = [part for one in (f"Host: {target.host}", *target.headers) for part in ("-H", one)]
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{RUN_S}s", *headers, target.gateway.url]
    said = subprocess.run(on_last_cpu(command), check=True, capture_output=True, text=True).stdout
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    if "Socket errors" in said or refused and not target.may_refuse:
        raise RuntimeError(f"{target.name}: {said}")
    figures.refused += int(refused[1]) if refused else 0
    number = re.search(r"(\d+) requests in", said)
    rate = re.search(r"Requests/sec: +([\d.]+)", said)
    assert number and rate, said
    figures.rates.append(float(rate[1]))
    figures.costs_us.append((cpu_s(target.gateway.pid) - before) / int(number[1]) * 1e6)


def at_rate(per_s: float) -> Callable[[Target, Figures], None]:
    def run(target: Target, figures: Figures) -> None:
        with tempfile.NamedTemporaryFile() as log:
            command = [
                "h2load", "--h1", "-t1", f"-c{CONNECTIONS}", f"-D{RUN_S}", "--warm-up-time=1",
                f"--rps={per_s / CONNECTIONS:.1f}", "-H", f":authority: {target.host}",
                f"--log-file={log.name}", target.gateway.url,
            ]  # fmt: skip
            subprocess.run(on_last_cpu(command), check=True, capture_output=True)
            rows = [line.split("\t") for line in Path(log.name).read_text().splitlines()]
        if any(row[1] != "200" for row in rows):
            raise RuntimeError(f"{target.name}: not every answer was 200")
        taken = sorted(int(row[2]) for row in rows)
        figures.p99_ms.append(taken[len(taken) * 99 // 100] / 1e3)

    return run


def show(name: str, value: float, bar: float, *, at_most: bool = False) -> bool:
    good = value <= bar if at_most else value >= bar
    print(f"{name:62} {value:9.3f}   needs {bar:g}{'' if good else '   <- short'}", flush=True)
    return good


def tell(found: dict[str, Figures]) -> None:
    for name, one in found.items():
        refused = f"  ({one.refused} refused: counting took too long)" if one.refused else ""
        spread = f"{one.rate:8.0f} requests/s (worst {min(one.rates):.0f})"
        print(f"  {name:32} {spread} {one.cost_us:7.1f} us of CPU each{refused}", flush=True)


# without policies


def speed(objects: Sequence[tuple[ResourceType, Obj]], to: int) -> tuple[bool, float]:
    """Whether it is fast enough, and what the slower of the two can do. How a process lies in memory makes a difference
    of some percent for as long as it lives, so another attempt has new ones."""
    ratios, capacity = [], 0.0
    while len(ratios) < ATTEMPTS and max(ratios, default=0.0) < RATE_BAR:
        with sentinel(objects) as made, bare_envoy(to) as plain, dutiful_envoy(to) as laden:
            bare, ours, dutiful = Target(plain.name, plain), Target("sentinel", made.gateway), Target(laden.name, laden)
            found = in_turns([bare, ours, dutiful], at_full_speed, PAIRS)
        tell(found)
        print(f"  to Envoy with the same duties: {_compared(found[ours.name], found[dutiful.name]):.3f}")
        ratios.append(_compared(found[ours.name], found[bare.name]))
        print(f"  to bare Envoy: {ratios[-1]:.3f}", flush=True)
        capacity = max(capacity, min(found[bare.name].rate, found[ours.name].rate))
    return show("requests/s through a sentinel to bare Envoy", max(ratios), RATE_BAR), capacity


def traces(objects: Sequence[tuple[ResourceType, Obj]], to: int) -> None:
    """Only reported: what tracing 1 % of the requests costs. The collector takes spans on the last CPU's side."""
    with (
        collector() as found,
        sentinel(objects) as made,
        sentinel(objects, traces_url=found.url) as traced,
        bare_envoy(to) as plain,
    ):
        bare, ours = Target(plain.name, plain), Target("sentinel", made.gateway)
        tracing = Target("sentinel, 1 % traced", traced.gateway)
        figures = in_turns([bare, ours, tracing], at_full_speed, PAIRS)
        tell(figures)
        print(f"  {len(found.spans)} spans arrived")
    for name in (ours.name, tracing.name):
        print(f"  {name} to bare Envoy: {_compared(figures[name], figures[bare.name]):.3f}", flush=True)


def _compared(one: Figures, other: Figures) -> float:
    """The median over the rounds."""
    return statistics.median(a / b for a, b in zip(one.rates, other.rates, strict=True))


def tail(bare: Target, ours: Target, capacity: float) -> bool:
    found = in_turns([bare, ours], at_rate(capacity * LOAD), ROUNDS)
    best = {name: min(one.p99_ms) for name, one in found.items()}
    print("  " + ", ".join(f"{name} p99 {ms:.2f} ms" for name, ms in best.items()) + f" at {capacity * LOAD:.0f}/s")
    return show("p99 at 70 % of capacity, to bare Envoy", best[ours.name] / best[bare.name], P99_BAR, at_most=True)


# policies

POLICIES: dict[str, Obj] = {
    "firewall": {"firewall": {"action": "deny", "cidrs": ["192.0.2.0/24"], "paths": ["/admin"]}},
    "cors": {"cors": {"origins": ["https://app.example"], "methods": ["GET"]}},
    "size": {"requestSize": {"maxBytes": 1 << 20}},
    "key": {"keyAuth": {"locations": [{"bearer": {}}]}},
    "limit": {"rateLimit": {"limit": 10**9, "window": 60, "scope": "local", "identifier": {"remoteIp": {}}}},
    "strict": {"rateLimit": {"limit": 10**9, "window": 60, "scope": "strict", "identifier": {"remoteIp": {}}}},
}


class Signer:
    """Makes a token that a policy accepts."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def pem(self) -> str:
        form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(*form).decode()

    def token(self) -> str:
        claims = {"sub": "bench", "exp": int(time.time()) + 86400}
        said = ".".join(_url64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        return f"{said}.{_url64(self._key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def keys_secret() -> tuple[ResourceType, Obj]:
    entry = {"digest": hashlib.sha256(KEY.encode()).hexdigest(), "subject": "bench", "permissions": []}
    others = {f"k{n}": {**entry, "digest": hashlib.sha256(f"other-{n}".encode()).hexdigest()} for n in range(999)}
    data = {id_: base64.b64encode(json.dumps(one).encode()).decode() for id_, one in {"key": entry, **others}.items()}
    about = {"name": "keys-bench", "namespace": "sentinel", "labels": LABELS}
    return builtin("secrets"), {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}


def policy_objects(to: int, pem: str, *, strict: bool) -> list[tuple[ResourceType, Obj]]:
    """A route without policies, and one with each of them alone."""
    wanted = {name: spec for name, spec in POLICIES.items() if strict or name != "strict"}
    wanted["token"] = {"jwt": {"pem": pem, "algorithms": ["RS256"]}}
    made = [keys_secret(), endpoints("app", to), route("plain", "app")]
    for name, spec in wanted.items():
        made += [policy(name, **spec), route(f"with-{name}", "app", policies=[name])]
    return made


def policies(ours: Target, token: str, *, strict: bool) -> bool:
    credentials = {"key": f"Authorization: Bearer {KEY}", "token": f"Authorization: Bearer {token}"}
    names = [name for name in (*POLICIES, "token") if strict or name != "strict"]
    targets = [ours] + [
        Target(
            name,
            ours.gateway,
            f"with-{name}.example",
            [credentials[name]] if name in credentials else (),
            may_refuse=name == "strict",
        )  # fmt: skip
        for name in names
    ]
    found = in_turns(targets, at_full_speed, max(3, ROUNDS // 2))
    tell(found)
    plain = found[ours.name]
    print("  to a route without policies: " + ", ".join(f"{n} {found[n].rate / plain.rate:.2f}" for n in names))
    return show("requests/s with a key to without policies", found["key"].rate / plain.rate, KEY_BAR)


def beside(stack: ExitStack, bare: Target, ours: Target, to: int) -> None:
    """Only for comparison: nothing depends on it."""
    folder, targets = Path(stack.enter_context(tempfile.TemporaryDirectory())), [bare, ours]
    for make, program, package in ((nginx, "nginx", "nginx-light"), (haproxy, "haproxy", "haproxy")):
        if why := missing(program, package):
            print(f"  skipped: {why}")
        else:
            gateway = stack.enter_context(make(to, folder))
            targets.append(Target(gateway.name, gateway))
    tell(in_turns(targets, at_full_speed, 3))


# many deployments


def many_objects(to: int) -> list[tuple[ResourceType, Obj]]:
    names = [f"d{n}" for n in range(DEPLOYMENTS)]
    slices = (endpoints(name, to, _addresses(at)) for at, name in enumerate(names))
    return [*slices, *(route(name, name) for name in names)]


def _addresses(at: int) -> list[str]:
    """Of this machine, every one of them: the instance answers on one only."""
    return [HOST, *(f"127.1.{at // 25}.{at % 25 * 10 + n}" for n in range(1, EACH))]


def many(ours: Sentinel, one: int, other: int) -> bool:
    """The slice of one deployment leads to one instance, then to the other; its requests say when Envoy knows."""
    found = []
    for _ in range(ATTEMPTS):
        taken, idle_s, used_s = asyncio.run(_changes(ours, one, other))
        cost_ms, visible = max(0.0, used_s / CHANGES - idle_s) * 1e3, sorted(taken)[len(taken) // 2] * 1e3
        print(
            f"  {CHANGES} changes: {min(taken) * 1e3:.0f} to {max(taken) * 1e3:.0f} ms until Envoy uses them, "
            f"{cost_ms:.2f} ms of CPU each beside {idle_s * 1e3:.2f} ms in which nothing changes"
        )
        found.append((cost_ms, visible))
    # The cost is a difference of two noisy times: its least would flatter, its median does not.
    cost_ms, visible = (statistics.median(figures) for figures in zip(*found, strict=True))
    good = show("one endpoint of 10 000 changed: ms until Envoy uses it, median", visible, VISIBLE_BAR_MS, at_most=True)
    good &= show("the same: ms of CPU of our process", cost_ms, CPU_BAR_MS, at_most=True)
    for name, pid in (("Envoy", ours.gateway.pid), ("our process", ours.gateway.own)):
        print(f"  memory of {name}: {_resident_mib(pid):.0f} MiB")
    return good


async def _changes(ours: Sentinel, one: int, other: int) -> tuple[list[float], float, float]:
    """Seconds that each took; CPU seconds of our process in the time of one, idle; and in all of them."""
    pause_s = 0.25
    taken: list[float] = []
    async with ours.client() as client:
        await _until_quiet(ours.gateway.own)
        before = cpu_s(ours.gateway.own)
        await asyncio.sleep(pause_s * CHANGES)
        idle_s = (cpu_s(ours.gateway.own) - before) / CHANGES
        for number in range(-3, CHANGES):
            if number == 0:
                before = cpu_s(ours.gateway.own)
            port = other if number % 2 else one
            _, wanted = endpoints("d500", port)
            began = time.perf_counter()
            await client.of(SLICES).apply(wanted, force=True)
            await asyncio.to_thread(_until_answered_by, ours, port)
            if number >= 0:
                taken.append(time.perf_counter() - began)
            await asyncio.sleep(max(0.0, pause_s - (time.perf_counter() - began)))
        return taken, idle_s, cpu_s(ours.gateway.own) - before


async def _until_quiet(pid: int) -> None:
    """The status of a thousand routes is written first."""
    for _ in range(60):
        before = cpu_s(pid)
        await asyncio.sleep(2)
        if cpu_s(pid) - before < 0.2:
            return


def _until_answered_by(ours: Sentinel, port: int) -> None:
    request = urllib.request.Request(ours.gateway.url, headers={"Host": "d500.example"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def instance() -> str:
        with opener.open(request, timeout=5) as answer:
            return str(answer.headers["x-instance"])

    eventually_blocking(instance, until=str(port).__eq__, timeout_s=10, every_s=0.0, what="answers of the new endpoint")


def _resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def main(parts: Iterable[str]) -> int:
    wanted, good = set(parts), True
    for program, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if why := missing(program, package):
            print(f"not measured: {why}")
            return 1
    with ExitStack() as stack:
        to = stack.enter_context(instance())
        if wanted & {"speed", "tail"}:
            is_fast, capacity = speed(policy_objects(to, Signer().pem, strict=False), to)
            good &= is_fast
        if "traces" in wanted:
            traces(policy_objects(to, Signer().pem, strict=False), to)
        if wanted - {"many", "speed", "traces"}:
            redis = stack.enter_context(redis_server()) if "policies" in wanted else None
            signer = Signer()
            objects = policy_objects(to, signer.pem, strict=redis is not None)
            found = stack.enter_context(sentinel(objects, redis_url=redis.url if redis else ""))
            bare = Target("bare Envoy", stack.enter_context(bare_envoy(to)))
            ours = Target("sentinel", found.gateway)
            if "tail" in wanted:
                good &= tail(bare, ours, capacity)
            if "policies" in wanted:
                good &= policies(ours, signer.token(), strict=redis is not None)
            if "beside" in wanted:
                beside(stack, bare, ours, to)
    if "many" in wanted:
        with instance() as one, instance() as other, sentinel(many_objects(one)) as crowded:
            good &= many(crowded, one, other)
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default="all", choices=(*PARTS, "all"), help="what to measure")
    assert shutil.which("taskset"), "taskset belongs to every Linux"
    asked = parser.parse_args().parts
    sys.exit(main(PARTS if "all" in asked else asked))
