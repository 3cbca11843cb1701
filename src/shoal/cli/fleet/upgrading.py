"""``shoal agents upgrade``: the agents of clusters run another image, in waves.

The wish is in each Cluster (``spec.agentImage``), so nothing is lost when the command ends: called again it goes on,
since clusters that run the image are done. A wave begins when the one before is done; a cluster whose agent does not
come back in time ends the command, and later waves stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import FleetSession
from shoal.cli.fleet.upgrade_plan import ClusterUpgrade, by_cluster, upgrade_of, waves_of
from shoal.cli.rest import CannotReach
from shoal.errors import ShoalError

COLUMNS = ("wave", "cluster", "region", "running", "state", "reason")
_POLL_S = 2.0


class WaveStopped(ShoalError):
    """A cluster of a wave has not come back; later waves were not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeDeps:
    """``pause`` waits, ``now_s`` is a monotonic time, ``say`` shows a line."""

    session: FleetSession
    pause: Callable[[float], object]
    now_s: Callable[[], float]
    say: Callable[[str], None]


class AgentUpgrade:
    def __init__(self, deps: UpgradeDeps, image: str, *, deadline_s: float) -> None:
        self._deps = deps
        self._image = image
        self._deadline_s = deadline_s

    def rows(self, clusters: Iterable[str], waves: str) -> list[dict[str, Any]]:
        """Every cluster with its wave; those that are skipped or done have none."""
        found = self._look(clusters)
        going = [each.cluster for each in found if each.state not in ("done", "skipped")]
        wave_of = {name: number for number, wave in enumerate(waves_of(going, waves), 1) for name in wave}
        return [{"wave": wave_of.get(each.cluster), **asdict(each)} for each in found]

    def run(self, clusters: Iterable[str], waves: str) -> list[ClusterUpgrade]:
        """Upgrade them; returns how they are in the end. Raises ``WaveStopped``."""
        found = self._look(clusters)
        for each in found:
            if each.state == "skipped":
                self._deps.say(f"{each.cluster}: skipped, {each.reason}")
        going = [each.cluster for each in found if each.state not in ("done", "skipped")]
        for number, wave in enumerate(plan := waves_of(going, waves), 1):
            self._deps.say(f"wave {number} of {len(plan)}: {', '.join(wave)}")
            for name in wave:
                self._want(name)
            self._await(number, wave)
        return self._look([each.cluster for each in found])

    def _await(self, number: int, wave: Sequence[str]) -> None:
        until_s, said = self._deps.now_s() + self._deadline_s, dict[str, str]()
        while True:
            found = self._seen(wave)
            for each in found:
                line = f"{each.cluster}: {each.state}" + (f", {each.reason}" if each.reason else "")
                if said.get(each.cluster) != line:
                    self._deps.say(f"  {line}")
                    said[each.cluster] = line
            behind = [each for each in found if each.state != "done"]
            if not behind:
                return
            if self._deps.now_s() >= until_s:
                raise WaveStopped(self._stopped(number, behind))
            self._deps.pause(_POLL_S)

    def _stopped(self, number: int, behind: Sequence[ClusterUpgrade]) -> str:
        shown = "; ".join(f"{each.cluster}: {each.reason}" for each in behind)
        chosen = " ".join(f"--cluster {each.cluster}" for each in behind)
        return (
            f"wave {number} stopped after {self._deadline_s:g} s: {shown}. Later waves are unchanged. When the "
            f"cause is gone, run the command again; to go back: shoal agents upgrade --image PREVIOUS {chosen}"
        )

    def _seen(self, wave: Sequence[str]) -> list[ClusterUpgrade]:
        """Also while the control plane is away for a moment."""
        try:
            return self._look(wave)
        except CannotReach as error:
            return [ClusterUpgrade(name, "", "-", "waiting", str(error)) for name in wave]

    def _look(self, clusters: Iterable[str]) -> list[ClusterUpgrade]:
        agents = by_cluster(self._deps.session.rest.get(f"{ROOT}/agents")["items"])
        chosen = list(clusters) or list(agents)
        return [upgrade_of(name, agents.get(name, []), self._image) for name in chosen]

    def _want(self, cluster: str) -> None:
        session = self._deps.session
        ref = session.find("cluster", cluster)
        known = session.get(ref)
        if known["spec"].get("agentImage") == self._image:
            return
        about = {key: value for key, value in known["metadata"].items() if key in ("name", "labels", "annotations")}
        document = {
            "apiVersion": known["apiVersion"], "kind": known["kind"], "metadata": about,
            "spec": {**known["spec"], "agentImage": self._image},
        }  # fmt: skip
        session.send("PUT", ref, body=document)
