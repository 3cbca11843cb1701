"""The status of a definition: whether its names are accepted, and the conditions that follow.

``settle`` does the work of the naming, establishing, approval and schema controllers of a Kubernetes server in one
step, because in one process there is no other server to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shoal.kube.crd.definition import APPROVAL_ANNOTATION, schema_of, spec_of, versions_of
from shoal.kube.crd.schema_rules import structural_errors
from shoal.kube.objects import Obj
from shoal.kube.times import format_time

Condition = dict[str, Any]

ESTABLISHED: Final = "Established"
NAMES_ACCEPTED: Final = "NamesAccepted"
NON_STRUCTURAL: Final = "NonStructuralSchema"
TERMINATING: Final = "Terminating"
APPROVED: Final = "KubernetesAPIApprovalPolicyConformant"


def condition_of(crd: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    for each in (crd.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            found: Mapping[str, Any] = each
            return found
    return None


def is_true(crd: Mapping[str, Any], kind: str) -> bool:
    found = condition_of(crd, kind)
    return found is not None and found.get("status") == "True"


def is_established(crd: Mapping[str, Any]) -> bool:
    """Whether the resources of the definition are served."""
    return is_true(crd, ESTABLISHED)


def with_condition(conditions: Iterable[Mapping[str, Any]], new: Condition, now: float) -> list[Condition]:
    """The conditions with one set; the transition time changes only with its status."""
    result, stamp = [], format_time(now)
    for each in conditions:
        if each.get("type") != new["type"]:
            result.append(dict(each))
        elif each.get("status") == new["status"] and each.get("lastTransitionTime"):
            stamp = each["lastTransitionTime"]
    made = {**new, "lastTransitionTime": stamp}
    for place, each in enumerate(conditions):
        if each.get("type") == new["type"]:
            return [*result[:place], made, *result[place:]]
    return [*result, made]


def without_condition(conditions: Iterable[Mapping[str, Any]], kind: str) -> list[Condition]:
    return [dict(each) for each in conditions if each.get("type") != kind]


def terminating(crd: Mapping[str, Any], now: float, *, message: str = "", done: bool = False) -> Obj:
    """The status of a definition that is being deleted: first its objects (``done`` False), then itself."""
    reason = "InstanceDeletionCompleted" if done else "InstanceDeletionInProgress"
    text = message or ("removed all instances" if done else "CustomResource deletion is in progress")
    new = {"type": TERMINATING, "status": "False" if done else "True", "reason": reason, "message": text}
    status = dict(crd.get("status") or {})
    status["conditions"] = with_condition(status.get("conditions") or (), new, now)
    return status


def accept_names(crd: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> tuple[Obj, Condition]:
    """The accepted names, and the NamesAccepted condition. ``others`` are all other definitions."""
    resources, kinds = _taken(spec_of(crd).get("group"), others)
    wanted = spec_of(crd).get("names") or {}
    held = (crd.get("status") or {}).get("acceptedNames") or {}
    accepted = {key: value for key, value in held.items() if value}
    conflict: tuple[str, str] | None = None
    for key, reason, used in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        asked, had = wanted.get(key), held.get(key)
        mine = had if key == "shortNames" else [had]
        clash = [f'"{name}" is already in use' for name in _listed(asked) if name not in (mine or ()) and name in used]
        if clash:
            conflict = (reason, clash[0] if len(clash) == 1 else f"[{', '.join(clash)}]")
        elif asked:
            accepted[key] = asked
        else:
            accepted.pop(key, None)
    accepted.pop("categories", None)
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    accepted.setdefault("plural", "")
    accepted.setdefault("kind", "")
    if conflict:
        return accepted, {"type": NAMES_ACCEPTED, "status": "False", "reason": conflict[0], "message": conflict[1]}
    return accepted, {
        "type": NAMES_ACCEPTED,
        "status": "True",
        "reason": "NoConflicts",
        "message": "no conflicts found",
    }


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _taken(group: Any, others: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if spec_of(other).get("group") != group:
            continue
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources.update(name for key in ("plural", "singular", "shortNames") for name in _listed(names.get(key)))
        kinds.update(name for key in ("kind", "listKind") for name in _listed(names.get(key)))
    return resources - {""}, kinds - {""}


def settle(crd: Mapping[str, Any], others: Iterable[Mapping[str, Any]], now: float) -> Obj | None:
    """The status that the definition should have, or None if it is unchanged."""
    status = dict(crd.get("status") or {})
    before = status.get("conditions") or []
    accepted, named = accept_names(crd, others)
    conditions = with_condition(before, named, now)
    if not is_established(crd):
        conditions = with_condition(conditions, _establishing(named["status"] == "True"), now)
    for new in (_structural(crd), _approval(crd)):
        kind = new["type"]
        if new.get("status"):
            conditions = with_condition(conditions, new, now)
        else:
            conditions = without_condition(conditions, kind)
    if accepted == status.get("acceptedNames") and conditions == before:
        return None
    return {**status, "conditions": conditions, "acceptedNames": accepted}


def _establishing(accepted: bool) -> Condition:
    if accepted:
        return {
            "type": ESTABLISHED,
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        }
    return {
        "type": ESTABLISHED,
        "status": "False",
        "reason": "NotAccepted",
        "message": "not all names are accepted",
    }


def _structural(crd: Mapping[str, Any]) -> Condition:
    faults: list[str] = []
    for index, version in enumerate(versions_of(crd)):
        schema = schema_of(version)
        if schema is not None:
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            faults += (str(error) for error in structural_errors(schema, path))
    if not faults:
        return {"type": NON_STRUCTURAL}
    text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return {"type": NON_STRUCTURAL, "status": "True", "reason": "Violations", "message": text}


def is_protected(group: str) -> bool:
    """Whether the group is reserved for the Kubernetes community."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval_state(crd: Mapping[str, Any]) -> tuple[str, str]:
    """``(state, reason)`` of the approval annotation; the state is missing, bypassed, approved or invalid."""
    value = ((crd.get("metadata") or {}).get("annotations") or {}).get(APPROVAL_ANNOTATION) or ""
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not value:
        return "missing", f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}", {see}'
    if value.startswith("unapproved"):
        return "bypassed", f'not approved: "{value}"'
    scheme, mark, rest = value.partition("://")
    if mark and scheme.isalnum() and rest.partition("/")[0] and " " not in value:
        return "approved", f"approved in {value}"
    return "invalid", (
        f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}" with either a URL or a reason '
        f'starting with "unapproved", {see}'
    )


def _approval(crd: Mapping[str, Any]) -> Condition:
    if not is_protected(str(spec_of(crd).get("group") or "")):
        return {"type": APPROVED}
    state, text = approval_state(crd)
    reasons = {
        "missing": "MissingAnnotation",
        "bypassed": "UnapprovedAnnotation",
        "approved": "ApprovedAnnotation",
        "invalid": "InvalidAnnotation",
    }
    status = "True" if state == "approved" else "False"
    return {"type": APPROVED, "status": status, "reason": reasons[state], "message": text}
