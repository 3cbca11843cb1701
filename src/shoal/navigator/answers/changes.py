"""History of changes: moments, each with the fields that changed since the moment before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from shoal.navigator.answers.diff import MOST_FIELDS, field_changes
from shoal.navigator.view import Moment

Json = dict[str, Any]


def shown_moments(moments: Sequence[Moment]) -> list[Json]:
    """In the order given. The first moment of an object has changed fields only if it says what it replaced."""
    before: dict[tuple[str, str, str], Any] = {}
    found: list[Json] = []
    for moment in moments:
        id_ = (moment.cluster, moment.kind, moment.key)
        obj = None if moment.data is None else orjson.loads(moment.data)
        shown: Json = {
            "at": moment.at_s, "cluster": moment.cluster, "kind": moment.kind, "key": moment.key,
            "change": "removed" if obj is None else "put",
        }  # fmt: skip
        if id_ not in before and moment.before is not None:
            before[id_] = orjson.loads(moment.before)
        if obj is not None and id_ in before:
            known = before[id_]
            if known is None:
                shown["change"] = "added"
            else:
                fields = field_changes(known, obj)
                shown |= {
                    "change": "changed",
                    "fields": [each.as_json() for each in fields[:MOST_FIELDS]],
                    "fieldCount": len(fields),
                }
        before[id_] = obj
        found.append(shown)
    return found
