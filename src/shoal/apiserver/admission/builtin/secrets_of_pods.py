"""Which secrets a pod refers to, and whether its account allows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from shoal.kube.objects import Obj

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_WORDS: Final = {
    "initContainers": "init container",
    "containers": "container",
    "ephemeralContainers": "ephemeral container",
}
# Volume sources with a reference to a secret: the field of the reference and the field of the name.
_VOLUME_REFERENCES: Final = {
    "azureFile": ("", "secretName"),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "secret": ("", "secretName"),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
}


def references_secrets(spec: Obj) -> bool:
    """Whether a pod needs any secret."""
    if spec.get("imagePullSecrets"):
        return True
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            if any(_secrets_in_environment(container)):
                return True
    return any(_volume_needs_secret(volume) for volume in spec.get("volumes") or ())


def _volume_needs_secret(volume: Obj) -> bool:
    for source, (reference, name) in _VOLUME_REFERENCES.items():
        found = volume.get(source)
        if found is not None:
            found = found.get(reference) if reference else found
            return found is not None and name in found
    return any("secret" in source for source in (volume.get("projected") or {}).get("sources") or ())


def _secrets_in_environment(container: Obj) -> Iterator[tuple[str, str]]:
    """(place, secret) for each secret that the container's environment references, in the order of the checks."""
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable.get('name', '')}", reference.get("name", "")
    for source in container.get("envFrom") or ():
        reference = source.get("secretRef")
        if reference is not None:
            yield "envFrom", reference.get("name", "")


def reference_fault(spec: Obj, account: str, secrets: Collection[str], pull_secrets: Collection[str]) -> str:
    """The message about the first secret of a new pod that its account does not list; "" when all are listed."""
    for volume in spec.get("volumes") or ():
        source = volume.get("secret")
        name = "" if source is None else source.get("secretName", "")
        if source is not None and name not in secrets:
            return (
                f'volume with secret.secretName="{name}" is not allowed because service account {account} does not '
                "reference that secret"
            )
    fault = _environment_fault(spec, ("initContainers", "containers"), account, secrets)
    if fault:
        return fault
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if secret.get("name", "") not in pull_secrets:
            return (
                f'imagePullSecrets[{index}].name="{secret.get("name", "")}" is not allowed because service account '
                f"{account} does not reference that imagePullSecret"
            )
    return ""


def ephemeral_reference_fault(spec: Obj, account: str, secrets: Collection[str], pull_secrets: Collection[str]) -> str:
    """As ``reference_fault``, for the containers that are added to a running pod."""
    return _environment_fault(spec, ("ephemeralContainers",), account, secrets)


def _environment_fault(spec: Obj, fields: tuple[str, ...], account: str, secrets: Collection[str]) -> str:
    for field in fields:
        for container in spec.get(field) or ():
            for place, secret in _secrets_in_environment(container):
                if secret not in secrets:
                    return (
                        f"{_WORDS[field]} {container.get('name', '')} with {place} referencing "
                        f'secret.secretName="{secret}" is not allowed because service account {account} does not '
                        "reference that secret"
                    )
    return ""
