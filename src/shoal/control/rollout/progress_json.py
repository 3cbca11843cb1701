"""Progress as JSON, as rows of rollouts keep it. Fields that another version wrote and this one does not know are
dropped; those that it did not write have their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from shoal.control.rollout.progress import Progress

_KNOWN = {each.name for each in fields(Progress)}


def progress_as_json(progress: Progress) -> dict[str, Any]:
    return asdict(progress)


def progress_from_json(found: Mapping[str, Any]) -> Progress:
    known = {name: value for name, value in found.items() if name in _KNOWN}
    known["waves"] = tuple(tuple(wave) for wave in known.get("waves") or ())
    for name in ("specs", "failed", "missed"):
        known[name] = tuple(known.get(name) or ())
    return Progress(**known)
