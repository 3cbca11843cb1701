"""Guards writes: adds the checked resourceVersion and the owner's epoch to every write of a controller. Pure.

A controller that runs alone may leave out resourceVersions. The proxy has read the object, knows that its slot is owned
and with which epoch, and adds the version that it has read. If a later owner writes in between, the server refuses the
write.
"""

from __future__ import annotations

from typing import Any

import orjson

from shoal.client import PatchType
from shoal.errors import BadRequest, Conflict, MethodNotAllowed
from shoal.kube.objects import Obj
from shoal.sharding.model import epoch_annotation, slot_label


def guarded_body(
    method: str, content_type: str, body: bytes, current: Obj, *, config: str, slot: int, epoch: int, stamp: bool
) -> bytes:
    """The body to send instead. ``stamp``: the write can change metadata (a status write cannot)."""
    version = current["metadata"]["resourceVersion"]
    if method == "DELETE":
        return _delete(body, current)
    if method == "PUT":
        sent = read_object(body)
        if not _version_of(sent.get("metadata")):
            raise Conflict(
                "a replacement without metadata.resourceVersion could undo another shard's write: read it first"
            )
        return orjson.dumps(stamped(sent, config, slot, epoch))
    if method == "PATCH":
        kind = media_type(content_type)
        if kind == PatchType.JSON:
            return _json_patch(body, version, config, epoch, stamp=stamp)
        if kind == PatchType.APPLY:
            return _apply(body, version, config, slot, epoch, stamp=stamp)
        if kind not in (PatchType.MERGE, PatchType.STRATEGIC):
            raise BadRequest(f"the proxy does not support patches of type {kind!r}")
        return _merge(body, current, config, epoch, stamp=stamp)
    raise MethodNotAllowed(f"the proxy does not forward {method} requests")


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip()


def stamped(obj: Obj, config: str, slot: int, epoch: int) -> Obj:
    """An object with its slot and the epoch of its owner."""
    about = obj.get("metadata") or {}
    labels = {**(about.get("labels") or {}), slot_label(config): str(slot)}
    notes = {**(about.get("annotations") or {}), epoch_annotation(config): str(epoch)}
    return {**obj, "metadata": {**about, "labels": labels, "annotations": notes}}


def carries_version(method: str, content_type: str, body: bytes) -> bool:
    """Whether the controller named a version: then it handles a conflict, else the proxy retries."""
    if method == "PUT":
        return True
    try:
        sent: Any = orjson.loads(body) if body else {}
    except ValueError:
        return False
    if method == "DELETE":
        return bool(_version_of(sent.get("preconditions")))
    if isinstance(sent, list):
        return any(each.get("path") == "/metadata/resourceVersion" for each in sent)
    return bool(_version_of(sent.get("metadata")))


def _version_of(named: Any) -> str:
    """The version that metadata or preconditions name; empty when they name none, or one that matches everything."""
    version: str = (named or {}).get("resourceVersion") or ""
    return "" if version == "0" else version


def read_object(body: bytes) -> Obj:
    """The object in a body, which must be JSON."""
    try:
        found = orjson.loads(body) if body else {}
    except ValueError as error:
        raise BadRequest(f"the body is not JSON, the only format the proxy supports: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest("the body is not an object")
    return found


def _delete(body: bytes, current: Obj) -> bytes:
    options = read_object(body)
    about, theirs = current["metadata"], options.get("preconditions") or {}
    conditions = {
        "uid": theirs.get("uid") or about["uid"],
        "resourceVersion": _version_of(theirs) or about["resourceVersion"],
    }
    return orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **options, "preconditions": conditions})


def _merge(body: bytes, current: Obj, config: str, epoch: int, *, stamp: bool) -> bytes:
    patch = read_object(body)
    theirs, about, slot = patch.get("metadata") or {}, current["metadata"], slot_label(config)
    made = {**theirs, "resourceVersion": _version_of(theirs) or about["resourceVersion"]}
    if stamp:
        made["annotations"] = {**(theirs.get("annotations") or {}), epoch_annotation(config): str(epoch)}
        if "labels" in theirs:
            # null removes all labels; the slot always stays
            labels = theirs["labels"] if theirs["labels"] is not None else dict.fromkeys(about.get("labels") or {})
            made["labels"] = {name: value for name, value in labels.items() if name != slot}
    return orjson.dumps({**patch, "metadata": made})


def _apply(body: bytes, version: str, config: str, slot: int, epoch: int, *, stamp: bool) -> bytes:
    """An apply removes fields that the applier set before and leaves out now, so every apply must have the slot."""
    sent = read_object(body)
    theirs = sent.get("metadata") or {}
    made = {**sent, "metadata": {**theirs, "resourceVersion": _version_of(theirs) or version}}
    return orjson.dumps(stamped(made, config, slot, epoch) if stamp else made)


def _json_patch(body: bytes, version: str, config: str, epoch: int, *, stamp: bool) -> bytes:
    try:
        operations = orjson.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch is a list")
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    made = [guard, *operations]
    if stamp:
        pointer = epoch_annotation(config).replace("~", "~0").replace("/", "~1")
        made.append({"op": "add", "path": f"/metadata/annotations/{pointer}", "value": str(epoch)})
    return orjson.dumps(made)
