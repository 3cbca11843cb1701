"""The result of one scene of the soak: sizes, samples over time, verdicts, and the machine that it ran on.

A result is a JSON file that can be committed: it names no host. ``bench/limits_page.py`` makes the page from it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal.testing.flatness import Tolerance, Verdict, verdict

# By how much a figure may grow over the time that is judged.
TOLERANCES = {
    "memory_mb": Tolerance(part=0.05, more=10.0),
    "files_mb": Tolerance(part=0.05, more=10.0),
    "descriptors": Tolerance(part=0.0, more=10.0),
    "tasks": Tolerance(part=0.0, more=10.0),
    "p99_ms": Tolerance(part=0.5, more=20.0),
}
SIZES_PART, HOLD_PART = "sizes", "hold"
WARM_UP = 0.3  # of the time: 20 minutes are then longer than twice the five minutes that the store keeps history for


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the measured process has at one moment, and the latency since the sample before."""

    at_s: float
    memory_mb: float
    files_mb: float  # of its state directory
    descriptors: int
    tasks: int  # of its event loop
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    cores: int
    memory_gb: float
    kernel: str
    python: str

    @classmethod
    def here(cls) -> Machine:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        cores = len(os.sched_getaffinity(0))
        return cls(cores=cores, memory_gb=round(memory, 1), kernel=platform.release(), python=platform.python_version())


@dataclass(slots=True, kw_only=True)
class Run:
    """When and where something was measured, and what else the machine did meanwhile."""

    date: str
    commit: str
    machine: Machine
    seed: int
    beside: str
    load: list[float]  # average of the last minute, at the start and at the end
    seconds: float = 0.0

    @classmethod
    def begin(cls, seed: int, beside: str) -> Run:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        load = [round(os.getloadavg()[0], 1)]
        return cls(date=date, commit=commit, machine=Machine.here(), seed=seed, beside=beside, load=load)

    def end(self, seconds: float) -> None:
        self.seconds = round(seconds, 1)
        self.load.append(round(os.getloadavg()[0], 1))

    def __str__(self) -> str:
        machine = self.machine
        return (
            f"{self.date}, commit {self.commit}, seed {self.seed}, {self.seconds:.0f} s, on {machine.cores} cores, "
            f"{machine.memory_gb:g} GB, kernel {machine.kernel}, Python {machine.python}; beside it: {self.beside} "
            f"(load average {self.load[0]:g} at the start, {self.load[-1]:g} at the end)"
        )


@dataclass(slots=True, kw_only=True)
class Recording:
    """What a scene measures, printed as it comes. Sizes and samples may come from runs at different times."""

    scene: str
    about: str = ""
    runs: dict[str, Run] = field(default_factory=dict)  # of "sizes" and "hold"
    sizes: list[dict[str, float]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Judge the samples. A scene that was too short for that has no verdicts, and a note that says so."""
        try:
            self.verdicts = [
                verdict(figure, self.series(figure), tolerance, warm_up=WARM_UP)
                for figure, tolerance in TOLERANCES.items()
            ]
        except ValueError as error:
            if self.samples:
                self.note(f"not judged: {error}")

    def series(self, figure: str) -> list[tuple[float, float]]:
        return [(sample.at_s, getattr(sample, figure)) for sample in self.samples]

    def keep(self, part: str, older: Recording) -> None:
        """Take the sizes, or what was held, from an older result: they were not measured this time."""
        if part in older.runs:
            self.runs[part] = older.runs[part]
        if part == SIZES_PART:
            self.sizes = older.sizes
        else:
            self.samples, self.verdicts, self.notes = older.samples, older.verdicts, older.notes

    @property
    def flat(self) -> bool:
        return all(each.flat for each in self.verdicts)

    def size(self, **figures: float) -> None:
        self.sizes.append({name: round(value, 3) for name, value in figures.items()})
        self.progress("  ".join(f"{name} {value:g}" for name, value in self.sizes[-1].items()))

    def sample(self, sample: Sample) -> None:
        rounded = {name: round(value, 1) for name, value in asdict(sample).items()}
        self.samples.append(Sample(**rounded))
        self.progress("  ".join(f"{name} {value:g}" for name, value in rounded.items()))

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.progress(text)

    def progress(self, text: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S} {self.scene}: {text}", flush=True)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.scene}.json"
        path.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n")
        return path


def read(path: Path) -> Recording:
    data: dict[str, Any] = json.loads(path.read_text())
    return Recording(
        **data
        | {
            "runs": {part: Run(**run | {"machine": Machine(**run["machine"])}) for part, run in data["runs"].items()},
            "samples": [Sample(**each) for each in data["samples"]],
            "verdicts": [Verdict(**each) for each in data["verdicts"]],
        }
    )


def read_all(folder: Path, order: Sequence[str]) -> list[Recording]:
    """The results in a folder, in the order of the scenes."""
    return [read(folder / f"{scene}.json") for scene in order if (folder / f"{scene}.json").exists()]


def summary(recordings: Sequence[Recording]) -> str:
    """All scenes as text."""
    lines = []
    for one in recordings:
        lines.append(f"{one.scene}: {one.about}")
        lines += [f"  {part}: {run}" for part, run in sorted(one.runs.items())]
        lines += [f"  {'  '.join(f'{name} {value:g}' for name, value in size.items())}" for size in one.sizes]
        for each in one.verdicts:
            unit = "s" if each.seconds < 7200 else "h"
            length = each.seconds if unit == "s" else each.seconds / 3600
            lines.append(
                f"  {each.figure}: {each.growth:+.1f} in {length:.0f} {unit} (median {each.median:.1f}, "
                f"allowed {each.allowed:.1f})  {'flat' if each.flat else 'GROWS'}"
            )
        lines += [f"  note: {note}" for note in one.notes]
        lines.append("")
    return "\n".join(lines)
