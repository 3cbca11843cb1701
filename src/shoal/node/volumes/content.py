"""The files of volumes that are made from objects: config maps, secrets, the pod itself, projections of them; pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shoal.kube.objects import Obj
from shoal.node.env import EnvironmentSources, pod_field, resource_field
from shoal.node.errors import ConfigFault, VolumeFault

DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class File:
    """A file of a volume."""

    data: bytes
    mode: int = DEFAULT_MODE


Files = dict[str, File]  # by path below the volume


@dataclass(frozen=True, slots=True)
class TokenProjection:
    """A service account token of a projected volume."""

    audience: str = ""
    expires_s: int = 3600
    path: str = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSources:
    """Objects of the pod's namespace that volumes refer to, and tokens by their projection."""

    environment: EnvironmentSources = field(default_factory=EnvironmentSources)
    tokens: Mapping[TokenProjection, str] = field(default_factory=dict)


def object_references(volume: Obj) -> Iterable[tuple[str, str]]:
    """Resource and name of the config maps and secrets that a volume is made from."""
    if source := volume.get("configMap"):
        yield "configmaps", source.get("name", "")
    if source := volume.get("secret"):
        yield "secrets", source.get("secretName", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if inner := source.get("configMap"):
            yield "configmaps", inner.get("name", "")
        if inner := source.get("secret"):
            yield "secrets", inner.get("name", "")


def token_projections(volume: Obj) -> Iterable[TokenProjection]:
    for source in (volume.get("projected") or {}).get("sources") or ():
        if inner := source.get("serviceAccountToken"):
            yield _token_projection(inner)


def _token_projection(source: Obj) -> TokenProjection:
    return TokenProjection(source.get("audience") or "", int(source.get("expirationSeconds") or 3600), source["path"])


def is_made_of_objects(volume: Obj) -> bool:
    return any(volume.get(kind) is not None for kind in ("configMap", "secret", "projected", "downwardAPI"))


def files_of(volume: Obj, pod: Obj, sources: VolumeSources) -> Files:
    """The files of the volume; raises ``VolumeFault`` for a missing object or key."""
    name = volume["name"]
    if (source := volume.get("configMap")) is not None:
        return _config_map(name, source, pod, sources, _mode(source))
    if (source := volume.get("secret")) is not None:
        return _secret(name, source, pod, source.get("secretName", ""), sources, _mode(source))
    if (source := volume.get("downwardAPI")) is not None:
        return _downward(name, source, pod, sources, _mode(source))
    if (source := volume.get("projected")) is not None:
        return _projected(name, source, pod, sources)
    raise VolumeFault(name, f"volume {name} is not a configMap, secret, downwardAPI or projected volume")


def _mode(source: Obj) -> int:
    found = source.get("defaultMode")
    return DEFAULT_MODE if found is None else int(found)


def _projected(name: str, source: Obj, pod: Obj, sources: VolumeSources) -> Files:
    mode, files = _mode(source), Files()
    for each in source.get("sources") or ():
        if (inner := each.get("configMap")) is not None:
            files |= _config_map(name, inner, pod, sources, mode)
        if (inner := each.get("secret")) is not None:
            files |= _secret(name, inner, pod, inner.get("name", ""), sources, mode)
        if (inner := each.get("downwardAPI")) is not None:
            files |= _downward(name, inner, pod, sources, mode)
        if (inner := each.get("serviceAccountToken")) is not None:
            token = sources.tokens.get(_token_projection(inner))
            if token is None:
                raise VolumeFault(name, "failed to fetch token: it has not been issued yet")
            files[_checked(name, inner["path"])] = File(token.encode(), mode)
        if each.get("clusterTrustBundle") is not None:
            raise VolumeFault(name, "this node does not support clusterTrustBundle")
    return files


def _config_map(name: str, source: Obj, pod: Obj, sources: VolumeSources, mode: int) -> Files:
    wanted = source.get("name", "")
    obj = sources.environment.config_maps.get(wanted)
    if obj is None:
        if source.get("optional"):
            return {}
        raise VolumeFault(name, f'configmap "{wanted}" not found')
    data = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    data |= {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}
    return _selected(name, source, data, mode, "configmap")


def _secret(name: str, source: Obj, pod: Obj, wanted: str, sources: VolumeSources, mode: int) -> Files:
    obj = sources.environment.secrets.get(wanted)
    if obj is None:
        if source.get("optional"):
            return {}
        raise VolumeFault(name, f'secret "{wanted}" not found')
    data = {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    return _selected(name, source, data, mode, "secret")


def _selected(name: str, source: Obj, data: Mapping[str, bytes], mode: int, kind: str) -> Files:
    items = source.get("items")
    if not items:
        return {_checked(name, key): File(value, mode) for key, value in data.items()}
    files = Files()
    for item in items:
        value = data.get(item["key"])
        if value is None:
            if source.get("optional"):
                continue
            raise VolumeFault(name, f"references non-existent {kind} key: {item['key']}")
        files[_checked(name, item["path"])] = File(value, mode if item.get("mode") is None else int(item["mode"]))
    return files


def _downward(name: str, source: Obj, pod: Obj, sources: VolumeSources, mode: int) -> Files:
    files = Files()
    for item in source.get("items") or ():
        try:
            if item.get("fieldRef"):
                text = pod_field(pod, item["fieldRef"]["fieldPath"], sources.environment)
            else:
                text = resource_field(pod, {}, item["resourceFieldRef"], sources.environment.allocatable)
        except ConfigFault as fault:
            raise VolumeFault(name, str(fault)) from fault
        own = item.get("mode")
        files[_checked(name, item["path"])] = File(text.encode(), mode if own is None else int(own))
    return files


def _checked(name: str, path: str) -> str:
    """Check that a path stays inside the volume. The API validates this too; the node does not rely on it."""
    if path.startswith("/") or not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise VolumeFault(name, f"invalid path {path!r}")
    if path.startswith(".."):
        raise VolumeFault(name, f"invalid path {path!r}: it must not start with '..'")
    return path
