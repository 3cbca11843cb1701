"""What sandboxes cost: the start of 200 pods, CPU and memory of each beside its program.

    PYTHONPATH=src python bench/sandbox_bench.py [PODS]

One node, as many pods at once as there are, each with one container that sleeps. Memory is what the machine has less of
afterwards, kernel included, without what the programs themselves take; CPU is that of the agent, the helper and the
shims. Bars are absolute, so the best of three counts.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from shoal.base.files import holder_of
from shoal.node.runtime.model import ContainerSpec, SandboxSpec
from shoal.node.runtime.process.runtime import ProcessRuntime
from shoal.node.runtime.process.shim import processes
from shoal.node.runtime.sandbox.client import LOCK
from shoal.testing.sandboxes import SandboxMachine

PODS = 200
START_BAR_S, MEMORY_BAR_MB, CPU_BAR_MS = 10.0, 3.0, 50.0
ATTEMPTS = 3
_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run with ``pods`` pods."""

    pods: int
    took_s: float
    cpu_s: float
    memory_mb: float  # of all, kernel included
    shims_mb: float
    programs_mb: float
    removal_s: float

    @property
    def each_mb(self) -> float:
        return (self.memory_mb - self.programs_mb) / self.pods

    @property
    def held(self) -> bool:
        each_ms = self.cpu_s / self.pods * 1000
        return self.took_s <= START_BAR_S and self.each_mb <= MEMORY_BAR_MB and each_ms <= CPU_BAR_MS

    def __str__(self) -> str:
        return (
            f"{self.pods} sandboxes: started in {self.took_s:.2f} s (bar {START_BAR_S:g} s), "
            f"{self.cpu_s / self.pods * 1000:.1f} ms of CPU each (bar {CPU_BAR_MS:g} ms), "
            f"{self.each_mb:.2f} MB each beside the program (bar {MEMORY_BAR_MB:g} MB; shim {self.shims_mb:.2f} MB, "
            f"program {self.programs_mb / self.pods:.2f} MB), removed in {self.removal_s:.2f} s"
        )


async def measure(folder: Path, pods: int) -> Cost:
    machine = SandboxMachine(folder)
    runtime = machine.runtime()
    await runtime.open()
    try:
        await _pod(runtime, "warm")
        helper = holder_of(machine.helper / LOCK) or 0
        memory, cpu, began = _available_mb(), time.process_time() + _cpu_s(helper, children=True), time.perf_counter()
        await asyncio.gather(*(_pod(runtime, f"pod-{number}") for number in range(pods)))
        took = time.perf_counter() - began
        containers = (await runtime.list()).containers
        mains = [int(each.identity.split("/")[0]) for each in containers]
        shims = [int(processes.stat_fields(pid)[1]) for pid in mains]
        used = time.process_time() + _cpu_s(helper, children=True) - cpu
        used += sum(_cpu_s(pid, children=True) for pid in shims) + sum(_cpu_s(pid, children=False) for pid in mains)
        await asyncio.sleep(1)
        memory -= _available_mb()
        found = [sum(map(processes.proportional_bytes, pids)) / 1e6 for pids in (shims, mains)]
        began = time.perf_counter()
        await asyncio.gather(*(runtime.remove_sandbox(each.id) for each in (await runtime.list()).sandboxes))
        return Cost(pods, took, used, memory, found[0] / len(shims), found[1], time.perf_counter() - began)
    finally:
        await runtime.close()
        await machine.halt()


async def _pod(runtime: ProcessRuntime, name: str) -> None:
    sandbox = await runtime.create_sandbox(SandboxSpec(pod_uid=name, namespace="bench", name=name))
    image = await runtime.pull("busybox")
    spec = ContainerSpec(
        name="main", attempt=0, image=image, image_reference="busybox", command=("sleep", "infinity")
    )  # fmt: skip
    await runtime.start((await runtime.create(sandbox.id, spec)).id)


def _available_mb() -> float:
    line = next(each for each in Path("/proc/meminfo").read_text().splitlines() if each.startswith("MemAvailable"))
    return int(line.split()[1]) / 1024


def _cpu_s(pid: int, *, children: bool) -> float:
    fields = processes.stat_fields(pid)
    return sum(map(int, fields[11 : 15 if children else 13])) * _TICK_S if fields else 0.0


def main() -> int:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else PODS
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            cost = asyncio.run(measure(Path(folder), pods))
        print(cost, flush=True)
        if cost.held:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
