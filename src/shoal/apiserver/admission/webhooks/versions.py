"""An object in another of its kind's versions, for hooks that ask for one."""

from __future__ import annotations

import orjson

from shoal.apiserver.registry import Served
from shoal.kube.objects import Obj


async def in_version(obj: Obj, of: Served, wanted: Served) -> Obj:
    """``obj``, which is in the version ``of``, in the version ``wanted``; itself when they are one."""
    if of is wanted:
        return obj
    if of.converter is not None:
        return (await of.converter.objects([obj], wanted.resource.api_version))[0]
    changed: Obj = orjson.loads(orjson.dumps(obj))  # conversions may change their argument
    if of.to_storage is not None:
        changed = of.to_storage(changed)
    if wanted.from_storage is not None:
        changed = wanted.from_storage(changed)
    changed["apiVersion"], changed["kind"] = wanted.resource.api_version, wanted.resource.kind
    return changed
