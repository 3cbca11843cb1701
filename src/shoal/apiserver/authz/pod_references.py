"""The objects that a node needs to run a pod: secrets, config maps, claims, its service account. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.kube.objects import Obj

MIRROR = "kubernetes.io/config.mirror"
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_SECRET_SOURCES = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
_VISIBLE_CSI = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")

Reference = tuple[str, str]  # (resource, name), in the pod's namespace


def references(pod: Obj) -> frozenset[Reference]:
    """The objects that the pod references directly. A mirror pod has none: its node wrote it."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if MIRROR in (metadata.get("annotations") or {}):
        return frozenset()
    found: set[Reference] = {("serviceaccounts", spec.get("serviceAccountName") or "")}
    found.update(("secrets", name) for name in secret_names(spec))
    found.update(("configmaps", name) for name in config_map_names(spec))
    found.update(("persistentvolumeclaims", name) for name in _claims(metadata["name"], spec))
    found.update(("resourceclaims", name) for name in _resource_claims(pod))
    return frozenset(reference for reference in found if reference[1])


def secret_names(spec: Obj) -> Iterator[str]:
    for each in spec.get("imagePullSecrets") or ():
        yield each.get("name") or ""
    yield from _from_environment(spec, "secretKeyRef", "secretRef")
    for volume in spec.get("volumes") or ():
        if "secret" in volume:
            yield (volume["secret"] or {}).get("secretName") or ""
        if "azureFile" in volume:
            yield (volume["azureFile"] or {}).get("secretName") or ""
        for kind in _SECRET_SOURCES:
            yield _name(volume.get(kind), "secretRef")
        yield _name(volume.get("csi"), "nodePublishSecretRef")
        for source in _projected(volume):
            yield (source.get("secret") or {}).get("name") or ""


def config_map_names(spec: Obj) -> Iterator[str]:
    yield from _from_environment(spec, "configMapKeyRef", "configMapRef")
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            yield (volume["configMap"] or {}).get("name") or ""
        for source in _projected(volume):
            yield (source.get("configMap") or {}).get("name") or ""


def volume_secrets(volume: Obj) -> Iterator[tuple[str, str]]:
    """(namespace, name) of the secrets that a node needs to mount a persistent volume."""
    spec = volume.get("spec") or {}
    claim_namespace = (spec.get("claimRef") or {}).get("namespace") or ""
    file = spec.get("azureFile")
    if file:
        yield file.get("secretNamespace") or claim_namespace, file.get("secretName") or ""
    for source in _SECRET_SOURCES:
        reference = (spec.get(source) or {}).get("secretRef")
        if reference:
            yield reference.get("namespace") or claim_namespace, reference.get("name") or ""
    for name in _VISIBLE_CSI:
        reference = (spec.get("csi") or {}).get(name)
        if reference:
            yield reference.get("namespace") or "", reference.get("name") or ""


def _from_environment(spec: Obj, key_reference: str, reference: str) -> Iterator[str]:
    for kind in CONTAINERS:
        for container in spec.get(kind) or ():
            for variable in container.get("env") or ():
                yield _name(variable.get("valueFrom"), key_reference)
            for source in container.get("envFrom") or ():
                yield _name(source, reference)


def _projected(volume: Obj) -> list[Obj]:
    return (volume.get("projected") or {}).get("sources") or []


def _name(holder: Obj | None, field: str) -> str:
    name: str = ((holder or {}).get(field) or {}).get("name") or ""
    return name


def _claims(pod_name: str, spec: Obj) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield (volume["persistentVolumeClaim"] or {}).get("claimName") or ""
        elif "ephemeral" in volume:
            yield f"{pod_name}-{volume['name']}"


def _resource_claims(pod: Obj) -> Iterator[str]:
    status = pod.get("status") or {}
    made = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        yield claim.get("resourceClaimName") or made.get(claim.get("name")) or ""
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""
