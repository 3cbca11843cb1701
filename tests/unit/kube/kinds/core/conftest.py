"""Building objects for tests: a small valid one, changed at a few dotted paths."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from shoal.kube.objects import Obj

Edited = Callable[[Obj, Obj], Obj]


def _edit(obj: Any, path: str, value: Any) -> None:
    *parents, last = path.split("/")
    for part in parents:
        obj = obj[int(part)] if isinstance(obj, list) else obj.setdefault(part, {})
    if isinstance(obj, list):
        obj[int(last) :] = [value] if int(last) >= len(obj) else [value, *obj[int(last) + 1 :]]
    elif value is ...:
        obj.pop(last, None)
    else:
        obj[last] = value


@pytest.fixture
def edited() -> Edited:
    """``edited(base, {"spec/containers/0/image": ""})``; the value ``...`` removes the field."""

    def edit(base: Obj, changes: Obj) -> Obj:
        made = copy.deepcopy(base)
        for path, value in changes.items():
            _edit(made, path, copy.deepcopy(value))
        return made

    return edit
