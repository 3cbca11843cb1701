"""ServiceAccount: every pod runs as an account of its namespace, and gets the account's token and pull secrets.

The additions to a pod, including the name of the token's volume, depend only on its spec and the account. So the
result for one spec is reused in every namespace with equal accounts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from shoal.apiserver.admission.builtin.namespaces import check_namespace
from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.builtin.secrets_of_pods import (
    ephemeral_reference_fault,
    reference_fault,
    references_secrets,
)
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.base.ids import SUFFIX_ALPHABET, SUFFIX_LENGTH
from shoal.kube.objects import Obj

DEFAULT: Final = "default"
MIRROR: Final = "kubernetes.io/config.mirror"
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME: Final = "kube-api-access-"
_ENFORCE: Final = "kubernetes.io/enforce-mountable-secrets"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_TOKEN_SECONDS: Final = 3607  # just over an hour: tells injected tokens from requested ones, as in Kubernetes
_DEFAULT_MODE: Final = 420
_MAX_LOOKS: Final = 10_000


class Account(NamedTuple):
    """The fields of a service account that the plugin uses."""

    name: str
    automount: bool | None
    pull_secrets: tuple[str, ...]
    secrets: frozenset[str]
    enforces: bool  # only the secrets it lists may be mounted


def _read(obj: Obj) -> Account:
    annotations = obj["metadata"].get("annotations") or {}
    return Account(
        obj["metadata"]["name"],
        obj.get("automountServiceAccountToken"),
        tuple(secret.get("name", "") for secret in obj.get("imagePullSecrets") or ()),
        frozenset(secret.get("name", "") for secret in obj.get("secrets") or ()),
        annotations.get(_ENFORCE) in _TRUE,
    )


class ServiceAccount:
    """Mutates and validates pods."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._accounts: ObjectCache[Account] = ObjectCache(core, "serviceaccounts", _read, self._looks_different)
        self._looks: dict[frozenset[Hashable], int] = {}  # known sets of accounts -> their number
        self._look_of: dict[str, int] = {}  # namespace -> the number of its accounts
        self._next_look = 1

    def start(self) -> None:
        self._accounts.start()

    def look(self, namespace: str) -> int:
        """A number for the accounts of a namespace: namespaces with equal accounts have the same number."""
        return self._look_of.get(namespace, 0)

    def _looks_different(self, namespace: str) -> None:
        if len(self._looks) > _MAX_LOOKS:
            self._looks.clear()
        accounts = frozenset(account[:3] for account in self._accounts.of(namespace).values())
        if not accounts:
            self._look_of.pop(namespace, None)
            return
        number = self._looks.get(accounts)
        if number is None:
            number = self._looks[accounts] = self._next_look
            self._next_look += 1
        self._look_of[namespace] = number

    def handles(self, where: Where) -> bool:
        return where == ("pods", CREATE, "")

    def mutate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        if is_mirror(pod):
            _check_mirror_pod(admission, pod["spec"])
            return
        spec = pod["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT
        account = self.account(admission, spec["serviceAccountName"])
        automount = spec.get("automountServiceAccountToken")
        if automount is None:
            automount = account.automount is not False
        if automount:
            _mount_token(spec, account.name)
        if account.pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": name} for name in account.pull_secrets]

    def account(self, admission: Admission, name: str) -> Account:
        found = self._accounts.get(name, admission.namespace)
        if found is not None:
            return found
        check_namespace(self._core, admission)
        where = f"{admission.namespace}/{name}"
        raise admission.denied(f'error looking up service account {where}: serviceaccount "{name}" not found')


class ServiceAccountRules:
    """The validating half of the plugin: checks pods after all mutations, and debug containers."""

    def __init__(self, accounts: ServiceAccount) -> None:
        self._accounts = accounts

    def handles(self, where: Where) -> bool:
        return where in (("pods", CREATE, ""), ("pods", UPDATE, "ephemeralcontainers"))

    def validate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        spec = pod["spec"]
        creates = admission.operation == CREATE
        if creates and is_mirror(pod):
            _check_mirror_pod(admission, spec)
            return
        name = spec.get("serviceAccountName")
        if not name:
            where = f"{admission.namespace}/{pod['metadata'].get('name', '')}"
            raise admission.denied(f"no service account specified for pod {where}")
        account = self._accounts.account(admission, name)
        if account.enforces:
            fault = (reference_fault if creates else ephemeral_reference_fault)(
                spec, account.name, account.secrets, account.pull_secrets
            )
            if fault:
                raise admission.denied(fault)


def is_mirror(pod: Obj) -> bool:
    annotations = pod["metadata"].get("annotations")
    return annotations is not None and MIRROR in annotations


def _check_mirror_pod(admission: Admission, spec: Obj) -> None:
    """A mirror pod shows a static pod of a node: it may not reference API objects."""
    if spec.get("serviceAccountName"):
        raise admission.denied("a mirror pod may not reference service accounts")
    if references_secrets(spec):
        raise admission.denied("a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise admission.denied("a mirror pod may not use ServiceAccountToken volume projections")


def _mount_token(spec: Obj, account: str) -> None:
    """A mount in every container that has none at the path, and the volume if a container needs it."""
    volumes = spec.get("volumes") or []
    known = next((v["name"] for v in volumes if v.get("name", "").startswith(_VOLUME)), "")
    name = known or _VOLUME + _suffix(account)
    needed = False
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            mounts = container.get("volumeMounts") or []
            if all(mount.get("mountPath") != TOKEN_PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}]
                needed = True
    if needed and not known:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_sources()}]


def _suffix(account: str) -> str:
    """Letters derived from the input, the same for the same input."""
    digest = hashlib.sha256(account.encode()).digest()
    return "".join(SUFFIX_ALPHABET[byte % len(SUFFIX_ALPHABET)] for byte in digest[:SUFFIX_LENGTH])


def _token_sources() -> dict[str, Any]:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
        "defaultMode": _DEFAULT_MODE,
    }
