"""The behaviour of a simulated pod, its progress, and the annotations that configure them.

Annotations of a pod set its behaviour: how long it takes to start and to become ready, when and how it exits, what it
uses. Missing and invalid annotations get the fleet's settings. Pods of an Indexed Job share one template;
``index-N.exit-code`` and similar annotations apply only to the pods of index N.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite
from zlib import crc32

from shoal.errors import ShoalError
from shoal.kube import quantity
from shoal.kube.objects import Obj

ANNOTATION_PREFIX = "simulated.shoal.dev/"
NODE_LABEL = "node.shoal.dev/runtime"  # nodes with this label and the value below are simulated
NODE_LABEL_VALUE = "simulated"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_SHELLS = ("sh", "bash", "ash", "dash")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)", re.ASCII)
DOWN_ANNOTATION = f"{ANNOTATION_PREFIX}down"  # on a node: it is down while it has the annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The behaviour of a pod. ``run_s`` None: it runs until it is deleted."""

    start_s: float = 0.0
    ready_s: float = 0.0  # after the start
    run_s: float | None = None
    exit_codes: tuple[int, ...] = (0,)  # of its runs in turn; the last one of all further runs
    failure_rate: float = 0.0  # part of the runs that exit with 1 instead; decided by the pod's uid, not by chance
    stop_s: float = 0.0  # from the deletion until it has ended
    cpu_milli: int = 0
    memory_bytes: int = 0
    image_error: bool = False  # never starts: ErrImagePull


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of a pod."""

    cpu_milli: int
    memory_bytes: int


class Stage(StrEnum):
    WAITING = "waiting"  # for its start
    RUNNING = "running"
    BACKOFF = "backoff"  # exited, starts again later
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProgress:
    """The current stage of a pod. Instants are wall seconds."""

    uid: str
    address: str
    stage: Stage = Stage.WAITING
    since: float = 0.0  # of the stage
    started_at: float = 0.0  # of the current or last run
    begun_at: float = 0.0  # when the node took the pod
    restarts: int = 0
    exit_code: int = 0
    exited_at: float = 0.0
    reason: str = ""  # of the pod, when it was ended for another reason than its exit
    message: str = ""


def behaviour_of(
    pod: Obj, default: Behaviour, *, job_run_s: float, missing_images: tuple[str, ...] = ()
) -> Behaviour:  # fmt: skip
    """The pod's behaviour: its annotations over ``default``; pods of a Job end by themselves after ``job_run_s``, or as
    their first container says. A pod with an image whose name has one of ``missing_images`` in it never starts."""
    about = pod["metadata"]
    for container in pod["spec"]["containers"] if missing_images else ():
        image = container.get("image", "")
        if any(part in image for part in missing_images):
            default = replace(default, image_error=True)
    if default.run_s is None and _is_of_job(about):
        default = _as_told(pod["spec"]["containers"], replace(default, run_s=job_run_s))
    annotations = about.get("annotations")
    if not annotations or not any(name.startswith(ANNOTATION_PREFIX) for name in annotations):
        return default
    return _annotated(annotations, default)


def _annotated(annotations: Mapping[str, str], default: Behaviour) -> Behaviour:
    index = f"{ANNOTATION_PREFIX}index-{annotations.get(INDEX_ANNOTATION, '')}."

    def said(name: str) -> str | None:
        return annotations.get(index + name, annotations.get(ANNOTATION_PREFIX + name))

    def number(name: str, otherwise: float | None) -> float | None:
        try:
            found = float(said(name) or "")
        except ValueError:
            return otherwise
        return found if isfinite(found) and found >= 0 else otherwise

    def codes(otherwise: tuple[int, ...]) -> tuple[int, ...]:
        try:
            return tuple(int(each) & 255 for each in (said("exit-code") or "").split(","))
        except ValueError:
            return otherwise

    def amount(name: str, otherwise: int, *, milli: bool) -> int:
        text = said(name)
        if text is None:
            return otherwise
        try:
            found = quantity.parse(text)
        except (ShoalError, ValueError):
            return otherwise
        return found.milli() if milli else found.value()

    return Behaviour(
        start_s=number("start-seconds", default.start_s) or 0.0,
        ready_s=number("ready-seconds", default.ready_s) or 0.0,
        run_s=number("run-seconds", default.run_s),
        exit_codes=codes(default.exit_codes),
        failure_rate=number("failure-rate", default.failure_rate) or 0.0,
        stop_s=number("stop-seconds", default.stop_s) or 0.0,
        cpu_milli=amount("cpu", default.cpu_milli, milli=True),
        memory_bytes=amount("memory", default.memory_bytes, milli=False),
        image_error=said("image-error") == "true" or default.image_error,
    )


def _as_told(containers: list[Obj], default: Behaviour) -> Behaviour:
    """The behaviour of commands that are understood: ``sleep N``, ``exit N`` in a shell, ``false``; a pause image runs
    forever."""
    first = containers[0]
    words = [*(first.get("command") or ()), *(first.get("args") or ())]
    if not words:
        repository = first.get("image", "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return replace(default, run_s=None) if repository == "pause" else default
    if len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] == "-c":
        words = words[2].split()
    program, rest = words[0].rpartition("/")[2] if words else "", words[1:]
    if program == "false" and not rest:
        return replace(default, exit_codes=(1,))
    if len(rest) != 1:
        return default
    if program == "sleep" and rest[0] == "infinity":
        return replace(default, run_s=None)
    if program == "sleep" and (found := _DURATION.fullmatch(rest[0])):
        return replace(default, run_s=float(found[1]) * _UNITS_S[found[2]])
    if program == "exit" and rest[0].isdecimal() and rest[0].isascii():
        return replace(default, exit_codes=(int(rest[0]) & 255,))
    return default


def _is_of_job(about: Obj) -> bool:
    return any(each.get("controller") and each["kind"] == "Job" for each in about.get("ownerReferences") or ())


def exit_code_of(behaviour: Behaviour, uid: str, restarts: int) -> int:
    """The exit code of a run. It is deterministic: a pod fails in the same runs in every simulation."""
    code = behaviour.exit_codes[min(restarts, len(behaviour.exit_codes) - 1)]
    if behaviour.failure_rate and crc32(f"{uid}/{restarts}".encode()) / 2**32 < behaviour.failure_rate:
        return code or 1
    return code
