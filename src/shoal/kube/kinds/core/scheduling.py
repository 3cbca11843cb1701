"""Where a pod may run: affinity, node selectors, tolerations, spread constraints, scheduling gates."""

from __future__ import annotations

from typing import Final

from shoal.errors import Cause, FieldError, duplicate, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import Errors, check_enum, check_label_selector, check_positive, check_syntax
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name
from shoal.kube.objects import Obj

TAINT_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_SPREAD_ACTIONS = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_INCLUSION = frozenset({"Ignore", "Honor"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_COMPARING_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_WEIGHT_FAULT = "must be in the range 1-100"


def check_affinity(affinity: Obj, path: str, errors: Errors) -> None:
    node = affinity.get("nodeAffinity")
    if node is not None:
        if node.get(_REQUIRED) is not None:
            check_node_selector(node[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}", errors)
        if node.get(_PREFERRED):
            _check_preferred_nodes(node[_PREFERRED], f"{path}.nodeAffinity.{_PREFERRED}", errors)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field)
        if pods is not None:
            _check_pod_affinity(pods, f"{path}.{field}", errors)


def check_node_selector(selector: Obj, path: str, errors: Errors) -> None:
    """A required node selector; persistent volumes have one too."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        errors.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms or ()):
        check_node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]", errors, check_values=True)


def check_node_selector_term(term: Obj, path: str, errors: Errors, *, check_values: bool) -> None:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        _check_node_requirement(requirement, f"{path}.matchExpressions[{index}]", errors, check_values)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        _check_node_field(requirement, f"{path}.matchFields[{index}]", errors)


def _check_node_requirement(requirement: Obj, path: str, errors: Errors, check_values: bool) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    check_syntax(requirement.get("key", ""), is_qualified_name, f"{path}.key", errors)
    if check_values:
        for index, value in enumerate(values):
            check_syntax(value, is_label_value, f"{path}.values[{index}]", errors)


def _check_node_field(requirement: Obj, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in ("In", "NotIn"):
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", detail))
    key = requirement.get("key", "")
    if key != "metadata.name":
        errors.append(invalid(f"{path}.key", key, "not a valid field selector key"))
        return
    for index, value in enumerate(values):
        check_syntax(value, is_dns1123_subdomain, f"{path}.values[{index}]", errors)


def _check_weight(weight: int, path: str, errors: Errors) -> None:
    if not 1 <= weight <= 100:
        errors.append(invalid(path, weight, _WEIGHT_FAULT))


def _check_preferred_nodes(terms: list[Obj], path: str, errors: Errors) -> None:
    for index, term in enumerate(terms):
        where = f"{path}[{index}]"
        _check_weight(term.get("weight", 0), f"{where}.weight", errors)
        # A preference that can never match is harmless, so its values are not checked.
        check_node_selector_term(term.get("preference") or {}, f"{where}.preference", errors, check_values=False)


def _check_pod_affinity(affinity: Obj, path: str, errors: Errors) -> None:
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        _check_pod_term(term, f"{path}.{_REQUIRED}[{index}]", errors)
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{path}.{_PREFERRED}[{index}]"
        _check_weight(weighted.get("weight", 0), f"{where}.weight", errors)
        _check_pod_term(weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", errors)


def _check_pod_term(term: Obj, path: str, errors: Errors) -> None:
    check_label_selector(term.get("labelSelector"), f"{path}.labelSelector", errors)
    check_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    for name in term.get("namespaces") or ():
        check_syntax(name, is_dns1123_label, f"{path}.namespace", errors)
    _check_label_keys(term, path, errors)
    key = term.get("topologyKey", "")
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    check_syntax(key, is_qualified_name, f"{path}.topologyKey", errors)


def _check_label_keys(owner: Obj, path: str, errors: Errors) -> None:
    """``matchLabelKeys`` and ``mismatchLabelKeys``, which the server merges into the selector on create."""
    match, mismatch = owner.get("matchLabelKeys") or (), owner.get("mismatchLabelKeys") or ()
    selector = owner.get("labelSelector")
    for field, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            errors.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
            continue
        for index, key in enumerate(keys):
            check_syntax(key, is_qualified_name, f"{path}.{field}[{index}]", errors)
    if selector and match:
        seen = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in seen and key in match:
                where = f"{path}[{match.index(key)}]"
                errors.append(invalid(where, key, "exists in both matchLabelKeys and labelSelector"))
            seen.add(key)
    for index, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))


def check_tolerations(tolerations: list[Obj], path: str, errors: Errors) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        if key:
            for text in is_qualified_name(key):
                errors.append(invalid(f"{path}[{index}].key", key, text))
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid(f"{path}[{index}].operator", operator, detail))
        if effect != "NoExecute" and toleration.get("tolerationSeconds") is not None:
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{path}[{index}].effect", effect, detail))
        if operator in ("Equal", ""):
            if faults := is_label_value(value):
                errors.append(invalid(f"{path}[{index}].operator", value, ";".join(faults)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid(f"{path}[{index}].operator", value, detail))
        else:
            choices = _COMPARING_OPERATORS if operator in ("Lt", "Gt") else ("Equal", "Exists")
            errors.append(not_supported(f"{path}[{index}].operator", operator, choices))
        if effect and effect not in TAINT_EFFECTS:
            errors.append(not_supported(f"{path}[{index}].effect", effect, TAINT_EFFECTS))


def check_spread_constraints(constraints: list[Obj], path: str, errors: Errors) -> None:
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        check_positive(constraint.get("maxSkew", 0), f"{where}.maxSkew", errors)
        if not key:
            errors.append(required(f"{where}.topologyKey", "can not be empty"))
        check_enum(action, _SPREAD_ACTIONS, f"{where}.whenUnsatisfiable", errors)
        for other in constraints[index + 1 :]:
            if other.get("topologyKey", "") == key and other.get("whenUnsatisfiable", "") == action:
                errors.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
                break
        domains = constraint.get("minDomains")
        if domains is not None:
            check_positive(domains, f"{where}.minDomains", errors)
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.append(invalid(f"{where}.minDomains", domains, detail))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(field) is not None:
                check_enum(constraint[field], _INCLUSION, f"{where}.{field}", errors)
        _check_label_keys(constraint, where, errors)
        check_label_selector(constraint.get("labelSelector"), f"{where}.labelSelector", errors)


def merge_label_keys(pod: Obj) -> None:
    """Add the values of the pod's labels named in ``matchLabelKeys`` to the selectors, in place."""
    spec, labels = pod.get("spec") or {}, (pod.get("metadata") or {}).get("labels") or {}
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_keys(constraint, labels)
    affinity = spec.get("affinity")
    if not affinity:
        return
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field) or {}
        for term in pods.get(_REQUIRED) or ():
            _merge_keys(term, labels)
        for weighted in pods.get(_PREFERRED) or ():
            _merge_keys(weighted.get("podAffinityTerm") or {}, labels)


def _merge_keys(owner: Obj, labels: dict[str, str]) -> None:
    selector = owner.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in owner.get(field) or ():
            if key in labels:
                requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(requirement)


def check_scheduling_gates(gates: list[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        check_syntax(name, is_qualified_name, f"{path}[{index}]", errors)
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def check_taints(taints: list[Obj], path: str, errors: Errors) -> None:
    """Taints of a node: at most one per key and effect."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        check_syntax(key, is_qualified_name, f"{where}.key", errors)
        if faults := is_label_value(value):
            errors.append(invalid(f"{where}.value", value, ";".join(faults)))
        if not effect:
            errors.append(required(f"{where}.effect"))
        else:
            check_enum(effect, TAINT_EFFECTS, f"{where}.effect", errors)
        if (key, effect) in seen:
            detail = "taints must be unique by key and effect pair"
            errors.append(FieldError(Cause.DUPLICATE, where, detail, taint))
        seen.add((key, effect))


def check_only_added_tolerations(new: list[Obj], old: list[Obj], path: str, errors: Errors) -> None:
    """On update, tolerations may only be added, and ``tolerationSeconds`` may change."""
    kept = [_without_seconds(toleration) for toleration in new]
    if any(_without_seconds(toleration) not in kept for toleration in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(forbidden(path, detail))
        return
    check_tolerations(new, path, errors)


def _without_seconds(toleration: Obj) -> Obj:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}


def check_only_removed_gates(new: list[Obj], old: list[Obj], path: str, errors: Errors) -> None:
    before = {gate.get("name", "") for gate in old}
    for index, gate in enumerate(new):
        name = gate.get("name", "")
        if name not in before:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.append(forbidden(f"{path}[{index}].name", detail))


def check_tightened_affinity(new: Obj | None, old: Obj | None, path: str, errors: Errors) -> None:
    """The node affinity of a gated pod may be narrowed but not widened."""
    before = ((old or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if not before:
        return
    terms = ((new or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    where = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    if len(terms) != len(before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.append(invalid(where, terms, detail))
        return
    for index, (term, was) in enumerate(zip(terms, before, strict=True)):
        if not _only_additions(term, was):
            detail = "only additions are allowed (no mutations or deletions)"
            errors.append(invalid(f"{where}[{index}]", term, detail))


def _only_additions(new: Obj, old: Obj) -> bool:
    fields = ("matchExpressions", "matchFields")
    if not any(old.get(field) for field in fields):
        return not any(new.get(field) for field in fields)
    return all((new.get(field) or [])[: len(old.get(field) or ())] == (old.get(field) or []) for field in fields)
