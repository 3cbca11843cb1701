"""Plans an upgrade of agents in waves, and judges how far a cluster has come. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.errors import ConfigError

DEFAULT_WAVES = "1,25%,100%"

Agent = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterUpgrade:
    """One cluster: ``state`` is done, wanted (not asked for yet), waiting, failed or skipped."""

    cluster: str
    region: str
    running: str
    state: str
    reason: str = ""


def upgrade_of(cluster: str, agents: Sequence[Agent], image: str) -> ClusterUpgrade:
    """How far the agents of a cluster are. ``agents`` are all of them, as the control plane shows them."""
    images = [each.get("image") for each in agents]
    running = ", ".join(sorted({str(each["running"]) for each in images if each})) or "-"
    region = str(agents[0]["region"]) if agents else ""

    def found(state: str, reason: str = "") -> ClusterUpgrade:
        return ClusterUpgrade(cluster, region, running, state, reason)

    if not agents:
        return found("skipped", "no agent has joined")
    if not all(images):
        return found("skipped", "its agent is no Deployment that it may change: upgrade its process or package there")
    for agent in agents:
        if agent["state"] != "Joined":
            return found("waiting", f"the agent of shard {agent['shard']} is {agent['state']}: {agent.get('reason')}")
    errors = [str(each["error"]) for each in images if each and each["error"]]
    if errors:
        return found("failed", errors[0])
    if any(each and each["running"] != image for each in images):
        return found("waiting", "its agent does not run the image yet")
    behind = sorted({name for each in images if each for name in each["waiting"]})
    return found("waiting", f"rolling out: {', '.join(behind)}") if behind else found("done")


def waves_of(clusters: Sequence[str], text: str) -> list[list[str]]:
    """The clusters by wave. Each part of ``text`` is how many are upgraded after that wave."""
    ends = [_end(part.strip(), len(clusters)) for part in text.split(",")]
    if ends != sorted(ends):
        raise ConfigError(f"--waves is {text!r}: each wave must reach at least as far as the one before")
    if clusters and ends[-1] < len(clusters):
        ends.append(len(clusters))
    starts = [0, *ends[:-1]]
    return [list(clusters[start:end]) for start, end in zip(starts, ends, strict=True) if end > start]


def _end(part: str, of: int) -> int:
    number = part.removesuffix("%")
    if not number.isascii() or not number.isdigit() or (part.endswith("%") and int(number) > 100):
        raise ConfigError(f"--waves has {part!r}: use numbers and percentages, for example {DEFAULT_WAVES}")
    return min(of, -(-of * int(number) // 100) if part.endswith("%") else int(number))


def by_cluster(agents: Iterable[Agent]) -> dict[str, list[Agent]]:
    """In the order in which clusters are upgraded: by region and name."""
    found: dict[str, list[Agent]] = {}
    for agent in sorted(agents, key=lambda each: (each["region"], each["cluster"], each["shard"])):
        found.setdefault(agent["cluster"], []).append(agent)
    return found
