"""Probes as data, and the state of a container after a series of results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from shoal.kube.objects import Obj


class ProbeKind(StrEnum):
    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"

    @property
    def field(self) -> str:
        return f"{self.value}Probe"


class ProbeResult(StrEnum):
    SUCCESS = "success"
    WARNING = "warning"  # counts as success, with an event
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The result of one probe."""

    result: ProbeResult
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The schedule and thresholds of a probe."""

    kind: ProbeKind
    handler: Obj  # the probe in the pod's spec
    delay_s: float = 0.0
    period_s: float = 10.0
    timeout_s: float = 1.0
    successes: int = 1
    failures: int = 3


def probe_of(container: Obj, kind: ProbeKind) -> Probe | None:
    found = container.get(kind.field)
    if not found:
        return None
    return Probe(
        kind=kind,
        handler=found,
        delay_s=float(found.get("initialDelaySeconds") or 0),
        period_s=float(found.get("periodSeconds") or 10),
        timeout_s=float(found.get("timeoutSeconds") or 1),
        successes=int(found.get("successThreshold") or 1),
        failures=int(found.get("failureThreshold") or 3),
    )


@dataclass(frozen=True, slots=True)
class ProbeSeries:
    """The results so far: the last one, how often in a row it came, and the verdict (None before the first)."""

    last: bool | None = None
    run: int = 0
    verdict: bool | None = None

    def after(self, probe: Probe, success: bool) -> ProbeSeries:
        """The series with one more result."""
        run = self.run + 1 if self.last is success else 1
        enough = run >= (probe.successes if success else probe.failures)
        return replace(self, last=success, run=run, verdict=success if enough else self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Probe results of a running container."""

    started: bool = True
    ready: bool = True
    failed: str = ""  # ``liveness`` or ``startup``: the container has to be killed


def port_of(port: int | str, container: Obj) -> int:
    """A port by its number or its name in the container's spec; raises ``ValueError`` for an unknown name."""
    if isinstance(port, int):
        return port
    if port.isascii() and port.isdigit():
        return int(port)
    for each in container.get("ports") or ():
        if each.get("name") == port:
            return int(each["containerPort"])
    raise ValueError(f"couldn't find port: {port!r}")
