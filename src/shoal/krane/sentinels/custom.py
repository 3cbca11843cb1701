"""Routes, policies and keys to Kubernetes objects; pure.

A route or policy is a custom object with the spec as it came; a route that has a certificate names the Secret that is
made of it. The keys of an environment are one Secret: per key its digest and what it allows, as JSON, never the key.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import orjson

from shoal.client import ResourceType, builtin
from shoal.crds.sentinel import API_VERSION
from shoal.errors import FieldError, Invalid, invalid, required
from shoal.krane.deployments.check import check_id
from shoal.krane.labels import NAME, NAMESPACE_SENTINEL, label_value, labels_of
from shoal.krane.objects.writer import type_of
from shoal.krane.owner import Owner
from shoal.kube import names
from shoal.kube.objects import Obj
from shoal.sync.keys import split_key
from shoal.wire.fleet.v1 import cluster_pb as pb

CERTIFICATE = {"tls.crt": "TLS_CRT", "tls.key": "TLS_KEY"}
"""Entries of the Secret, and the variables they come from."""
_KINDS = {"route": "SentinelRoute", "policy": "SentinelPolicy"}
TYPES: dict[str, ResourceType] = {
    **{kind: type_of(made, API_VERSION) for kind, made in _KINDS.items()},
    "keys": builtin("secrets"),
}
"""By kind of key."""


def keys_name(environment: str) -> str:
    """The name of the Secret with an environment's keys. Ids have underscores, which names may not have."""
    return f"keys-{environment.replace('_', '-').lower()}"


def name_of(key: str, name: str) -> str:
    kind, id_ = split_key(key)
    return keys_name(id_) if kind == "keys" else name


def certificate_name(route: str) -> str:
    """The name of the Secret with a route's certificate."""
    return f"tls-{route}"


def render_certificate(key: str, state: pb.CustomState, owner: Owner, values: Mapping[str, str]) -> Obj:
    """The Secret with the certificate of a route; ``Invalid`` when there is none in the values."""
    _, id_ = split_key(key)
    missing = [required(f"tls.{name}") for name in CERTIFICATE.values() if not values.get(name)]
    if missing:
        raise Invalid.of("CustomState", "", state.name, missing)
    labels = labels_of(owner, "route", id_, workspace=state.workspace, environment=state.environment)
    about = {"name": certificate_name(state.name), "namespace": NAMESPACE_SENTINEL, "labels": labels}
    data = {entry: base64.b64encode(values[name].encode()).decode() for entry, name in CERTIFICATE.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "type": "kubernetes.io/tls", "data": data}


def render_custom(key: str, state: pb.CustomState, owner: Owner) -> Obj:
    """The object of a route, a policy or a set of keys; ``Invalid`` when it cannot be made."""
    kind, id_ = split_key(key)
    name = name_of(key, state.name)
    spec = _check(kind, id_, name, state)
    labels = labels_of(owner, kind, id_, workspace=state.workspace, environment=state.environment)
    if state.title:
        labels[NAME] = label_value(state.title)
    about = {"name": name, "namespace": NAMESPACE_SENTINEL, "labels": labels}
    if kind == "keys":
        data = {entry["id"]: _entry(entry) for entry in spec.get("keys") or ()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "type": "Opaque", "data": data}
    if state.tls is not None:
        spec = {**spec, "tls": {"secret": certificate_name(name)}}
    made = {"apiVersion": API_VERSION, "kind": _KINDS[kind], "metadata": about, "spec": spec}
    return {**made, "rollout": orjson.loads(state.rollout)} if state.rollout else made


def _check(kind: str, id_: str, name: str, state: pb.CustomState) -> Obj:
    errors: list[FieldError] = [*check_id("key", id_)]
    for field in ("workspace", "environment"):
        if value := getattr(state, field):
            errors += check_id(field, value)
    if not name:
        errors.append(required("name"))
    errors += [invalid("name", name, fault) for fault in names.is_dns1123_subdomain(name) if name]
    try:
        spec = orjson.loads(state.spec or b"{}")
        rollout = orjson.loads(state.rollout or b"{}")
    except ValueError:
        spec = rollout = None
    if not isinstance(rollout, dict):
        errors.append(invalid("rollout", "(bytes)", "must be a JSON object"))
    if not isinstance(spec, dict):
        errors.append(invalid("spec", "(bytes)", "must be a JSON object"))
    elif kind == "keys":
        errors += _key_faults(spec)
    if errors:
        raise Invalid.of("CustomState", "", name, errors)
    assert isinstance(spec, dict)
    return spec


def _key_faults(spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for at, entry in enumerate(spec.get("keys") or ()):
        if not isinstance(entry, dict) or not entry.get("digest"):
            found.append(required(f"spec.keys[{at}].digest"))
        elif names.is_config_map_key(str(entry.get("id") or "")):
            found.append(invalid(f"spec.keys[{at}].id", entry.get("id"), "must be usable as an entry of a Secret"))
    return found


def _entry(key: Obj) -> str:
    """What a gateway needs to judge a request with the key."""
    spec = key.get("spec") or {}
    allowed = {
        "digest": key["digest"],
        "permissions": list(spec.get("permissions") or ()),
        "subject": spec.get("identity") or key.get("name") or key["id"],
        "expires": key.get("expiresAt") or spec.get("expiresAt") or 0,
        "enabled": spec.get("enabled", True),
        "meta": spec.get("meta") or {},
    }
    return base64.b64encode(orjson.dumps(allowed, option=orjson.OPT_SORT_KEYS)).decode()
