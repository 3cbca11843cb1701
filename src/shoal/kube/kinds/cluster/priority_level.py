"""PriorityLevelConfiguration: how many requests run at once, and what happens to the rest."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds import bootstrap_flowcontrol
from shoal.kube.kinds.checks import Errors
from shoal.kube.kinds.cluster.flow_schema import check_conditions, validate_status
from shoal.kube.kinds.common import deep_same, fill, read, spec_of
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_MAX_QUEUES: Final = 10_000_000
_HASH_BITS: Final = 60
_ZERO_SHARES: Final = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
_TYPES: Final = ("Exempt", "Limited")
_RESPONSES: Final = ("Queue", "Reject")


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    exempt = spec.get("exempt")
    if exempt is not None:
        exempt.setdefault("nominalConcurrencyShares", 0)
        exempt.setdefault("lendablePercent", 0)
    limited = spec.get("limited")
    if limited is None:
        return
    limited.setdefault("nominalConcurrencyShares", 30)
    limited.setdefault("lendablePercent", 0)
    queuing = read(limited, "limitResponse").get("queuing")
    if queuing is not None:
        fill(queuing, "handSize", 8)
        fill(queuing, "queues", 64)
        fill(queuing, "queueLengthLimit", 50)


def _check_shares(part: Obj, path: str, errors: Errors) -> None:
    shares, lendable = part.get("nominalConcurrencyShares"), part.get("lendablePercent")
    if shares is not None and shares < 0:
        errors.append(invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if lendable is not None and not 0 <= lendable <= 100:
        errors.append(invalid(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive"))


def _check_queuing(queuing: Obj, path: str, errors: Errors) -> None:
    length, queues = queuing.get("queueLengthLimit") or 0, queuing.get("queues") or 0
    hand = queuing.get("handSize") or 0
    if length <= 0:
        errors.append(invalid(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        errors.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > _MAX_QUEUES:
        errors.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}"))
    if hand <= 0:
        errors.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errors.append(invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        errors.append(invalid(f"{path}.handSize", hand, text))


def _check_response(response: Obj, path: str, errors: Errors) -> None:
    kind, queuing = response.get("type"), response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            text = "must be nil if limited.limitResponse.type is not Limited"
            errors.append(forbidden(f"{path}.queuing", text))
    elif kind == "Queue":
        if queuing is None:
            text = "must not be empty if limited.limitResponse.type is Limited"
            errors.append(required(f"{path}.queuing", text))
        else:
            _check_queuing(queuing, f"{path}.queuing", errors)
    elif kind:
        errors.append(not_supported(f"{path}.type", kind, _RESPONSES))
    else:
        errors.append(required(f"{path}.type"))


def _check_limited(limited: Obj, errors: Errors) -> None:
    _check_shares(limited, "spec.limited", errors)
    _check_response(read(limited, "limitResponse"), "spec.limited.limitResponse", errors)
    borrowing = limited.get("borrowingLimitPercent")
    if borrowing is not None and borrowing < 0:
        text = "if specified, must be a non-negative integer"
        errors.append(invalid("spec.limited.borrowingLimitPercent", borrowing, text))


def _check_spec(spec: Obj, name: str, errors: Errors) -> None:
    kind, limited, exempt = spec.get("type"), spec.get("limited"), spec.get("exempt")
    if (name == "exempt") != (kind == "Exempt"):
        errors.append(invalid("spec.type", kind or "", "must be 'Exempt' if and only if `name` is 'exempt'"))
    if kind == "Exempt":
        if limited is not None:
            errors.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        if exempt is not None:
            _check_shares(exempt, "spec.exempt", errors)
    elif kind == "Limited":
        if exempt is not None:
            errors.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if limited is None:
            errors.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            _check_limited(limited, errors)
    elif kind:
        errors.append(not_supported("spec.type", kind, _TYPES))
    else:
        errors.append(required("spec.type"))


@cache
def _mandatory() -> dict[str, Obj]:
    levels = bootstrap_flowcontrol.priority_levels()
    wanted = bootstrap_flowcontrol.MANDATORY
    return {each["metadata"]["name"]: each["spec"] for each in levels if each["metadata"]["name"] in wanted}


def _check_mandatory(spec: Obj, name: str, errors: Errors) -> None:
    fixed = _mandatory().get(name)
    if fixed is None:
        return
    if name == "exempt":
        if not deep_same({**spec, "exempt": None}, {**fixed, "exempt": None}):
            text = f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
            errors.append(invalid("spec", spec, text))
    elif not deep_same(spec, fixed):
        errors.append(invalid("spec", spec, f"spec of '{name}' must equal the fixed value"))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    metadata = obj["metadata"]
    if _ZERO_SHARES in read(metadata, "annotations"):
        errors.append(forbidden("metadata.annotations", f"annotation '{_ZERO_SHARES}' is forbidden"))
    name, spec = metadata.get("name") or "", read(obj, "spec")
    _check_spec(spec, name, errors)
    _check_mandatory(spec, name, errors)
    check_conditions(obj, errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _validate(new)


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=validate_status,
)
