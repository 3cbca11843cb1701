"""Objects to test the kinds with: a valid one of each, and a way to say what is different about it.

An edit is a path with dots and numbers and the value to put there; ``ABSENT`` takes the field away.
"""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from shoal.kube.kinds import rules_for
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

ABSENT = object()
_EXAMPLES = {each["kind"]: each for each in yaml.safe_load_all((Path(__file__).parent / "examples.yaml").read_text())}


def _rules(obj: Obj) -> KindRules:
    group, _, version = obj["apiVersion"].rpartition("/")
    return rules_for(group, version, obj["kind"])


def _edited(obj: Obj, edits: Obj) -> Obj:
    made = copy.deepcopy(obj)
    for path, value in edits.items():
        target: Any = made
        *parents, last = [int(part) if part.isdigit() else part for part in path.replace("\\.", "\0").split(".")]
        for part in parents:
            part = part.replace("\0", ".") if isinstance(part, str) else part
            if isinstance(target, dict) and target.get(part) is None:
                target[part] = {}
            target = target[part]
        last = last.replace("\0", ".") if isinstance(last, str) else last
        if value is ABSENT:
            target.pop(last, None)
        elif isinstance(target, list) and last == len(target):
            target.append(copy.deepcopy(value))
        else:
            target[last] = copy.deepcopy(value)
    return made


def _example(kind: str, edits: Obj | None = None) -> Obj:
    return _edited(_EXAMPLES[kind], edits or {})


def _created(kind: str, edits: Obj | None = None) -> Obj:
    """The object as it is when it is validated."""
    obj = _example(kind, edits)
    rules = _rules(obj)
    rules.default(obj)
    rules.prepare_create(obj)
    return obj


def _faults(kind: str, edits: Obj | None = None) -> list[str]:
    """What is wrong with the example after the edits, as clients read it."""
    obj = _created(kind, edits)
    return [str(error) for error in _rules(obj).validate_create(obj)]


def _update_faults(kind: str, edits: Obj, before: Obj | None = None) -> list[str]:
    """What is wrong with writing ``edits`` onto the created example, which first got ``before``."""
    old = _created(kind, before)
    new = _edited(old, edits)
    untouched = copy.deepcopy(old)
    rules = _rules(new)
    rules.default(new)
    rules.prepare_update(new, old)
    errors = rules.validate_update(new, old)
    assert old == untouched
    return [str(error) for error in errors]


def _status_faults(kind: str, status: Obj, before: Obj | None = None, spec: Obj | None = None) -> list[str]:
    old = _created(kind, spec)
    if before is not None:
        old["status"] = before
    new = copy.deepcopy(old)
    new["status"] = copy.deepcopy(status)
    untouched = copy.deepcopy(old)
    rules = _rules(new)
    rules.prepare_status(new, old)
    errors = rules.validate_status(new, old)
    assert old == untouched
    return [str(error) for error in errors]


@pytest.fixture(scope="session")
def kinds() -> SimpleNamespace:
    """The helpers above, under one name."""

    def warnings(kind: str, edits: Obj | None = None) -> list[str]:
        made = _created(kind, edits)
        return _rules(made).warnings(made)

    return SimpleNamespace(
        ABSENT=ABSENT,
        names=tuple(_EXAMPLES),
        rules=_rules,
        example=_example,
        edited=_edited,
        created=_created,
        faults=_faults,
        update_faults=_update_faults,
        status_faults=_status_faults,
        warnings=warnings,
    )
