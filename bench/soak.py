"""Load at full size, and hours of ordinary work: memory, files, descriptors, tasks and latency must stay flat.

    python bench/soak.py [--scenes real,virtual,agents,…] [--parts sizes,hold] [--minutes 20] [--hours 24] [--hold 5]

Each scene runs in a process of its own and writes one result, ``SCENE.json``, with its samples, its verdicts and the
machine; ``summary.txt`` has all of them as text. The sizes (agents, watchers, clusters, pods, objects of a navigator)
grow step by step; the largest one is held for ``--hold`` minutes. ``--parts`` measures only one of the two, on a quiet
machine for example, and keeps the other from the result that is there. A figure is flat when its growth after the
warm-up, by the median of the slopes between all samples, is within its tolerance (``soak_model.TOLERANCES``). Fails
when one grows.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

import soak_hours
import soak_sizes
import uvloop
from soak_model import HOLD_PART, SIZES_PART, Recording, Run, read_all, summary

from shoal.base import logs

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "docs" / "operations" / "soak"
SIZES = {
    "agents": soak_sizes.agents,
    "watchers": soak_sizes.watchers,
    "clusters": soak_sizes.clusters,
    "pods": soak_sizes.pods,
    "navigator": soak_sizes.navigator,
}
SCENES = (*SIZES, "real", "virtual")
PARTS = (SIZES_PART, HOLD_PART)
QUICK = {
    "agents": (20, 50), "watchers": (50, 100), "clusters": (1, 3), "pods": (1000, 2000), "navigator": (4000, 8000),
}  # fmt: skip


def coroutine(scene: str, recording: Recording, options: argparse.Namespace) -> Coroutine[None, None, None]:
    if scene == "real":
        return soak_hours.real(recording, options.minutes, options.seed)
    if scene == "virtual":
        return soak_hours.virtual(recording, options.hours)
    sizes = QUICK[scene] if options.quick else soak_sizes.SIZES[scene]
    if SIZES_PART not in options.parts:
        sizes = sizes[-1:]
    return SIZES[scene](recording, options.hold if HOLD_PART in options.parts else 0.0, sizes)


def run(scene: str, options: argparse.Namespace) -> bool:
    """One scene in this process; whether all its figures are flat."""
    logs.configure(level="error")
    recording, begun_s = Recording(scene=scene), time.monotonic()
    random.seed(options.seed)
    this = Run.begin(options.seed, options.beside)
    recording.runs = dict.fromkeys(options.parts if scene in SIZES else (HOLD_PART,), this)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine(scene, recording, options))
    this.end(time.monotonic() - begun_s)
    recording.judge()
    for older in read_all(options.out, [scene]):
        for part in set(PARTS) - set(recording.runs):
            recording.keep(part, older)
    recording.progress(f"wrote {recording.write(options.out)}")
    (options.out / "summary.txt").write_text(summary(read_all(options.out, SCENES)))
    print(summary([recording]), flush=True)
    return recording.flat


def run_each(scenes: list[str], arguments: list[str]) -> bool:
    """Each scene in a process of its own, so that none inherits the memory of another."""
    failed = []
    for scene in scenes:
        if subprocess.run([sys.executable, __file__, *arguments, "--scenes", scene], check=False).returncode:
            failed.append(scene)
    print(f"failed, or not flat: {', '.join(failed)}" if failed else "no scene has failed")
    return not failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", default=",".join(SCENES), help=f"of {', '.join(SCENES)}; default: all")
    parser.add_argument("--minutes", type=float, help="of real time for `real`; default 20")
    parser.add_argument("--hours", type=int, help="of virtual time for `virtual`; default 24")
    parser.add_argument("--hold", type=float, help="minutes for which a largest size is held; default 5")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="sizes (measure each) or hold (only the largest, for a time)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", default="nothing", help="what else the machine does; it is written into the result")
    parser.add_argument("--out", type=Path, help="folder of the results; default docs/operations/soak")
    parser.add_argument("--quick", action="store_true", help="small and short, to try it; results go to build/soak")
    options = parser.parse_args(arguments)
    quick = options.quick
    defaults = {
        "minutes": 2.0 if quick else 20.0, "hours": 8 if quick else 24, "hold": 2.0 if quick else 5.0,
        "out": ROOT / "build" / "soak" if quick else COMMITTED,
    }  # fmt: skip
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    scenes, options.parts = options.scenes.split(","), options.parts.split(",")
    for name, given, known in (("scenes", scenes, SCENES), ("parts", options.parts, PARTS)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"--{name}: {', '.join(unknown)} is not one of {', '.join(known)}")
    good = run(scenes[0], options) if len(scenes) == 1 else run_each(scenes, arguments)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
