"""Plans a change of an app: a new revision or a change in place, the differences, and the names of objects.

The *template* is what a revision is made of and never changes. A region's overrides change containers too, so other
overrides make a revision as well. Everything else of an app (how many, where, running or stopped, placement rules,
drift, readiness, rollout) is changed in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from shoal.control.domain.kinds.app import AppSpec, RegionSpec
from shoal.control.domain.model import Diff

MAX_CLUSTER_NAME = 46  # a pod adds 17 letters to the name of its Deployment, and 63 is the limit
RESTARTS = "restarts"  # in the template of a revision, once the app was restarted
OVERRIDES = "overrides"  # of the regions, in the template of a revision
RENDER = "render"  # the rules by which agents render a revision, in its template
NEWEST_RENDER = 2
ADOPTED = "adopted"  # by region, the Deployments that a revision is there, in its template
_BESIDE = (OVERRIDES, RENDER, ADOPTED)  # what is recorded with a template and is not a part of it
_OPTIONAL = (
    "security",
    "imagePullSecrets",
    "podLabels",
)  # fields that templates without them do not name: their hash stays
_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def template_of(spec: AppSpec) -> dict[str, Any]:
    """The template in its one canonical form: two specs that mean the same give the same."""
    return {
        "image": spec.image,
        "command": list(spec.command),
        "args": list(spec.args),
        "env": dict(sorted(spec.env.items())),
        "secrets": list(spec.secrets),
        "resources": spec.resources.as_json(),
        "port": spec.port,
        "protocol": spec.protocol,
        "healthcheck": spec.healthcheck.as_json() if spec.healthcheck else None,
        "shutdownSignal": spec.shutdown_signal,
        "terminationSeconds": spec.termination_seconds,
        "git": dict(sorted(spec.git.items())),
        "nodeSelector": dict(sorted(spec.node_selector.items())),
        "tolerations": [each.as_json() for each in spec.placement.tolerations],
        **({"security": security} if (security := spec.security.as_json()) else {}),
        **({"imagePullSecrets": list(spec.image_pull_secrets)} if spec.image_pull_secrets else {}),
        **({"podLabels": dict(sorted(spec.pod_labels.items()))} if spec.pod_labels else {}),
        **({RESTARTS: spec.restarts} if spec.restarts else {}),
    }


def secrets_of(template: Mapping[str, Any]) -> list[str]:
    """The Secrets that a revision needs, by name: those of its variables and those of its registries."""
    return [*(template.get("secrets") or ()), *(template.get("imagePullSecrets") or ())]


def template_hash(template: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()


def containers_of(template: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """A template as one region runs it; instances with equal ones need no restart."""
    own = overrides or {}
    return {
        **{name: value for name, value in template.items() if name not in _BESIDE},
        "image": own.get("image") or template.get("image"),
        "env": {**(template.get("env") or {}), **(own.get("env") or {})},
        "resources": {**(template.get("resources") or {}), **(own.get("resources") or {})},
    }


def recorded_template(spec: AppSpec, render: int = NEWEST_RENDER) -> dict[str, Any]:
    """The template as it is kept with a revision: with the overrides of the regions, so that it can be had again, and
    with the rules by which agents render it."""
    overrides = {row.region: found for row in spec.topology if (found := row.overrides.as_json())}
    return {**template_of(spec), **({OVERRIDES: overrides} if overrides else {}), RENDER: render}


def spec_of_revision(spec: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The stored spec of an app with the template of an earlier revision; how many and where stay as they are."""
    overrides = template.get(OVERRIDES) or {}
    kept = {name: value for name, value in spec.items() if name not in (*template, *_OPTIONAL, RESTARTS)}
    found = {name: value for name, value in template.items() if name not in (*_BESIDE, "tolerations")}
    topology = [
        {name: value for name, value in row.items() if name != OVERRIDES}
        | ({OVERRIDES: overrides[row["region"]]} if row["region"] in overrides else {})
        for row in spec.get("topology") or ()
    ]
    placement = {name: value for name, value in (spec.get("placement") or {}).items() if name != "tolerations"}
    if template.get("tolerations"):
        placement["tolerations"] = template["tolerations"]
    made = {**kept, **found, "topology": topology, **({"placement": placement} if placement else {})}
    return {name: value for name, value in made.items() if value not in (None, {}, [], "")}


@dataclass(frozen=True, slots=True)
class RegionState:
    """What a deployment's row of a region holds besides its place. All but the overrides is changed in place."""

    replicas: int
    autoscaling: dict[str, Any] | None
    overrides: dict[str, Any] | None
    desired_status: str

    def with_overrides(self, overrides: dict[str, Any] | None) -> RegionState:
        return replace(self, overrides=overrides)


def region_state(spec: AppSpec, row: RegionSpec) -> RegionState:
    return RegionState(
        replicas=row.replicas,
        autoscaling=dict(row.autoscaling.as_json()) if row.autoscaling else None,
        overrides=row.overrides.as_json(),
        desired_status="running" if spec.desired == "running" else "stopped",
    )


@dataclass(frozen=True, slots=True)
class AppPlan:
    """What applying a spec does. Regions that stay are in ``keep``, or in ``change`` where their state differs."""

    new_revision: bool
    add: tuple[str, ...]
    change: tuple[str, ...]
    keep: tuple[str, ...]
    remove: tuple[str, ...]


def plan_app(
    spec: AppSpec, known_hash: str, rows: Mapping[str, RegionState], containers: Mapping[str, Mapping[str, Any]]
) -> AppPlan:
    """``rows`` is what the newest revision has by region's name and ``containers`` what it runs there; ``known_hash``
    is its template's, empty for none."""
    template = template_of(spec)
    wanted = {row.region: region_state(spec, row) for row in spec.topology}
    same = {
        region: state == rows[region].with_overrides(state.overrides)
        for region, state in wanted.items()
        if region in rows
    }
    return AppPlan(
        new_revision=template_hash(template) != known_hash
        or any(
            containers[region] != containers_of(template, state.overrides)
            for region, state in wanted.items()
            if region in containers
        ),
        add=tuple(region for region in wanted if region not in rows),
        change=tuple(region for region, is_same in same.items() if not is_same),
        keep=tuple(region for region, is_same in same.items() if is_same),
        remove=tuple(sorted(region for region in rows if region not in wanted)),
    )


def needed_regions(rule: int | str, regions: int) -> int:
    """How many of the regions must be healthy. One whole region may be down unless the app says otherwise."""
    if rule == "all":
        return regions
    if isinstance(rule, int):
        return min(rule, regions)
    return max(regions - 1, 1) if regions else 0


def needed_instances(replicas: int, autoscaling: Mapping[str, Any] | None) -> int:
    return int(autoscaling.get("min") or 1) if autoscaling else replicas


def told_instances(instances: int | None, replicas: int, autoscaling: Mapping[str, Any] | None) -> int:
    """How many instances a row must have; ``instances`` is set while revisions are exchanged."""
    return needed_instances(replicas, autoscaling) if instances is None else instances


def cluster_name(name: str, *identity: str | int, most: int = MAX_CLUSTER_NAME) -> str:
    """A name for Kubernetes: readable, a DNS label that begins with a letter, and one per identity."""
    digest = hashlib.sha256("\0".join(map(str, identity)).encode()).digest()
    tail = "".join(_DIGITS[byte & 31] for byte in digest[:8])
    head = name if name[:1].isalpha() else f"x{name}"
    return f"{head[: most - len(tail) - 1].rstrip('-')}-{tail}"


def differences(before: Any, after: Any, path: str = "") -> list[Diff]:
    """The smallest fields that differ, in order. Lists are compared item by item when they are of one length."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = sorted({*before, *after}, key=str)
        return [
            diff
            for name in names
            for diff in differences(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
        ]
    if _is_list(before) and _is_list(after) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return [diff for i, (old, new) in enumerate(pairs) for diff in differences(old, new, f"{path}[{i}]")]
    return [] if before == after and type(before) is type(after) else [Diff(path, before, after)]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
