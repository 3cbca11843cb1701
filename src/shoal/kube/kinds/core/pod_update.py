"""Updates of pods: the few fields that may change, and the two subresources that may change others."""

from __future__ import annotations

import json
from typing import Any

from shoal.errors import forbidden, invalid, required
from shoal.kube.kinds.checks import Errors, check_range, same
from shoal.kube.kinds.core.containers import check_image_spaces
from shoal.kube.kinds.core.pod_defaults import default_pod_level_resources
from shoal.kube.kinds.core.pod_status import qos_class
from shoal.kube.kinds.core.scheduling import (
    check_only_added_tolerations,
    check_only_removed_gates,
    check_tightened_affinity,
)
from shoal.kube.objects import Obj

MIRROR = "kubernetes.io/config.mirror"
_MAX_INT32 = 2**31 - 1
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
# Fields with rules of their own, which are not part of the comparison.
_COMPARED_APART = frozenset({"containers", "initContainers", "activeDeadlineSeconds", "schedulingGates", "tolerations"})
_RESIZED = ("cpu", "memory")


def prepare_update(new: Obj, old: Obj) -> None:
    """Keep the status, and the resources of the whole pod if the client does not know them."""
    if "status" in old:
        new["status"] = old["status"]
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("resources") is None and before.get("resources") is not None:
        spec["resources"] = before["resources"]


def validate_spec_update(new: Obj, old: Obj, errors: Errors) -> None:
    """The changes of an update that are not allowed."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("containers", "initContainers"):
        if not _check_images(spec.get(field) or [], before.get(field) or [], f"spec.{field}", errors):
            return
    if not _check_deadline(spec, before, errors):
        return
    tolerations = spec.get("tolerations") or []
    check_only_added_tolerations(tolerations, before.get("tolerations") or [], "spec.tolerations", errors)
    gates = spec.get("schedulingGates") or []
    check_only_removed_gates(gates, before.get("schedulingGates") or [], "spec.schedulingGates", errors)
    if spec != before:
        _check_rest(spec, before, errors)


def _check_images(new: list[Obj], old: list[Obj], path: str, errors: Errors) -> bool:
    if len(new) != len(old):
        errors.append(forbidden(path, "pod updates may not add or remove containers"))
        return False
    for index, container in enumerate(new):
        if not container.get("image"):
            errors.append(required(f"{path}[{index}].image"))
        check_image_spaces(container, f"{path}[{index}]", errors)
    return True


def _check_deadline(spec: Obj, before: Obj, errors: Errors) -> bool:
    """The deadline may be set, or shortened."""
    deadline, was = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if deadline is None:
        if was is not None:
            errors.append(invalid(path, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= deadline <= _MAX_INT32:
        check_range(deadline, 0, _MAX_INT32, path, errors)
        return False
    if was is not None and deadline > was:
        errors.append(invalid(path, deadline, "must be less than or equal to previous value"))
        return False
    return True


def _check_rest(spec: Obj, before: Obj, errors: Errors) -> None:
    ignored = set(_COMPARED_APART)
    grace, was = spec.get("terminationGracePeriodSeconds"), before.get("terminationGracePeriodSeconds")
    if grace == 1 and was is not None and was < 0:
        ignored.add("terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        ignored |= _check_gated(spec, before, errors)
    changed = [
        field
        for field in sorted(spec.keys() | before.keys())
        if field not in ignored and not same(spec.get(field), before.get(field))
    ]
    for field in ("containers", "initContainers"):
        if not _same_but(spec.get(field) or [], before.get(field) or [], "image"):
            changed.append(field)
    if changed:
        detail = f"pod updates may not change fields other than {_UPDATABLE}\n{_difference(spec, before, changed)}"
        errors.append(forbidden("spec", detail))


def _check_gated(spec: Obj, before: Obj, errors: Errors) -> set[str]:
    """The node selector and affinity of a gated pod may be narrowed; the checked fields are removed from the
    comparison."""
    ignored = {"nodeSelector"}
    selector, was = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in was.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid("spec.nodeSelector", selector, detail))
    affinity, old_affinity = spec.get("affinity") or {}, before.get("affinity") or {}
    nodes, old_nodes = affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity")
    if nodes != old_nodes:
        check_tightened_affinity(nodes, old_nodes, "spec.affinity.nodeAffinity", errors)
        others = ("podAffinity", "podAntiAffinity")
        if all(same(affinity.get(field), old_affinity.get(field)) for field in others):
            ignored.add("affinity")
    return ignored


def _same_but(new: list[Obj], old: list[Obj], *fields: str) -> bool:
    """Whether two lists of containers differ only in these fields."""
    if len(new) != len(old):
        return False
    for left, right in zip(new, old, strict=True):
        if left == right:
            continue
        for field in left.keys() | right.keys():
            if field not in fields and not same(left.get(field), right.get(field)):
                return False
    return True


def _difference(spec: Obj, before: Obj, fields: list[str]) -> str:
    lines = []
    for field in fields:
        lines += [f"- {field}: {_shown(before.get(field))}", f"+ {field}: {_shown(spec.get(field))}"]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


# --- /ephemeralcontainers


def prepare_ephemeral_containers(new: Obj, old: Obj) -> None:
    """Drop all changes except those of the ephemeral containers."""
    wanted = (new.get("spec") or {}).get("ephemeralContainers")
    spec = dict(old.get("spec") or {})
    if wanted is None:
        spec.pop("ephemeralContainers", None)
    else:
        spec["ephemeralContainers"] = wanted
    new["spec"] = spec
    if "status" in old:
        new["status"] = old["status"]


def validate_ephemeral_update(new: Obj, old: Obj, errors: Errors) -> None:
    """Ephemeral containers can only be added."""
    if MIRROR in ((old.get("metadata") or {}).get("annotations") or ()):
        errors[:] = [forbidden("[]", "static pods do not support ephemeral containers")]
        return
    path = "spec.ephemeralContainers"
    now = {c.get("name", ""): c for c in (new.get("spec") or {}).get("ephemeralContainers") or ()}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = before.get("name", "")
        if name not in now:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not _same_but([now[name]], [before]):
            changed = [f for f in sorted(now[name].keys() | before.keys()) if now[name].get(f) != before.get(f)]
            detail = f'existing ephemeral containers "{name}" may not be changed\n'
            errors.append(forbidden(path, detail + _difference(now[name], before, changed)))


# --- /resize


def prepare_resize(new: Obj, old: Obj) -> None:
    """Drop all changes except those of resources and resize policies; validation reports other lists of containers."""
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    lists = {}
    for field in ("containers", "initContainers"):
        now, was = spec.get(field) or [], before.get(field) or []
        if len(now) != len(was):
            return
        names_kept = all(a.get("name") == b.get("name") for a, b in zip(now, was, strict=True))
        lists[field] = [_resized(a, b) for a, b in zip(now, was, strict=True)] if names_kept else now
    resources = spec.get("resources")
    merged = dict(before)
    merged.update({field: containers for field, containers in lists.items() if containers})
    if resources is not None:
        merged["resources"] = resources
        default_pod_level_resources(merged)
    new["spec"] = merged
    if "status" in old:
        new["status"] = old["status"]


def _resized(new: Obj, old: Obj) -> Obj:
    container = dict(old)
    for field in ("resources", "resizePolicy"):
        if field in new:
            container[field] = new[field]
        else:
            container.pop(field, None)
    return container


def validate_resize_update(new: Obj, old: Obj, errors: Errors) -> None:
    """Only cpu and memory of existing containers may change, and they may not be removed."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if MIRROR in ((old.get("metadata") or {}).get("annotations") or ()):
        errors[:] = [forbidden("[]", "static pods cannot be resized")]
        return
    if (before.get("os") or {}).get("name") == "windows":
        errors[:] = [forbidden("[]", "windows pods cannot be resized")]
        return
    was = (old.get("status") or {}).get("qosClass") or qos_class(old)
    if qos_class(new) != was:
        errors.append(invalid("spec", was, "Pod QOS Class may not change as a result of resizing"))
    if not _node_resizes(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    if before.get("resources") and not spec.get("resources"):
        errors.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
    elif before.get("resources"):
        _check_not_removed(spec["resources"], before["resources"], "spec.resources", "pod-level resource", errors)
    if _check_same_containers(spec, before, errors):
        _check_only_resized(spec, before, errors)


def _node_resizes(pod: Obj) -> bool:
    """Whether the node can resize: such nodes report the resources of running containers."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if (status.get("state") or {}).get("running") is not None:
            return status.get("resources") is not None
    return True


def _check_same_containers(spec: Obj, before: Obj, errors: Errors) -> bool:
    good = True
    for field in ("containers", "initContainers"):
        now, was = spec.get(field) or [], before.get(field) or []
        if len(now) != len(was):
            errors.append(forbidden(f"spec.{field}", f"{field} may not be added or removed on resize"))
            good = False
            continue
        for index, (container, old) in enumerate(zip(now, was, strict=True)):
            if container.get("name") != old.get("name"):
                where = f"spec.{field}[{index}].name"
                errors.append(forbidden(where, f"{field} may not be renamed or reordered on resize"))
                good = False
    return good


def _check_not_removed(new: Obj, old: Obj, path: str, what: str, errors: Errors) -> None:
    for field in ("requests", "limits"):
        if (old.get(field) or {}).keys() - (new.get(field) or {}).keys():
            errors.append(forbidden(f"{path}.{field}", f"{what} {field} cannot be removed"))


def _check_only_resized(spec: Obj, before: Obj, errors: Errors) -> None:
    found = len(errors)
    for index, (now, was) in enumerate(zip(spec.get("containers") or (), before.get("containers") or (), strict=True)):
        where = f"spec.containers[{index}].resources"
        _check_not_removed(now.get("resources") or {}, was.get("resources") or {}, where, "resource", errors)
        if not _only_compute_changed(now, was):
            errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    pairs = zip(spec.get("initContainers") or (), before.get("initContainers") or (), strict=True)
    for index, (now, was) in enumerate(pairs):
        where = f"spec.initContainers[{index}]"
        _check_not_removed(
            now.get("resources") or {}, was.get("resources") or {}, f"{where}.resources", "resource", errors
        )
        if not _only_compute_changed(now, was):
            detail = "only cpu and memory resources for init or sidecar containers are mutable"
            errors.append(forbidden(where, detail))
    if len(errors) > found:
        return
    apart = ("containers", "initContainers", "resources")
    if any(not same(spec.get(f), before.get(f)) for f in spec.keys() | before.keys() if f not in apart):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable"))


def _only_compute_changed(new: Obj, old: Obj) -> bool:
    if not _same_but([new], [old], "resources"):
        return False
    now, was = new.get("resources") or {}, old.get("resources") or {}
    if not same(now.get("claims"), was.get("claims")):
        return False
    return all(_without_compute(now.get(f)) == _without_compute(was.get(f)) for f in ("requests", "limits"))


def _without_compute(resources: dict[str, str] | None) -> dict[str, str]:
    return {name: amount for name, amount in (resources or {}).items() if name not in _RESIZED}
