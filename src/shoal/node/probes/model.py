"""Probes as data, and the state of a container after a series of answers."""

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
    WARNING = "warning"  # counts as success, and is told
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The result of one probe."""

    result: ProbeResult
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """When to ask, and how many answers count."""

    kind: ProbeKind
    handler: Obj  # the probe as the pod has it
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
    """The answers so far: how often in a row the last one came, and what they add up to (None: nothing yet)."""

    last: bool | None = None
    run: int = 0
    verdict: bool | None = None

    def after(self, probe: Probe, success: bool) -> ProbeSeries:
        """With one more answer."""
        run = self.run + 1 if self.last is success else 1
        enough = run >= (probe.successes if success else probe.failures)
        return replace(self, last=success, run=run, verdict=success if enough else self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Probe results of a running container."""

    started: bool = True
    ready: bool = True
    failed: str = ""  # ``liveness`` or ``startup``: it has to be killed


def port_of(port: int | str, container: Obj) -> int:
    """A port by number or by the name it has in the container; ``ValueError`` when there is none of that name."""
    if isinstance(port, int):
        return port
    if port.isascii() and port.isdigit():
        return int(port)
    for each in container.get("ports") or ():
        if each.get("name") == port:
            return int(each["containerPort"])
    raise ValueError(f"couldn't find port: {port!r}")
