"""NodeRestriction: a node may write only its own Node, Lease and CSINode, mirror pods, and its pods' status.

The authorizer allows nodes to write objects of these kinds without seeing their content; this plugin checks the
content. It ignores users that are not nodes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from shoal.apiserver import objects
from shoal.apiserver.admission.model import CREATE, DELETE, UPDATE, Admission, Where
from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.authz.node import LEASE_NAMESPACE, NODE_USER, node_of
from shoal.apiserver.authz.pod_references import MIRROR, config_map_names, secret_names
from shoal.apiserver.context import Core
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.store import Key

_RESTRICTED: Final = "node-restriction.kubernetes.io"
_NODE_LABELS: Final = frozenset(
    {
        "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone", "kubernetes.io/arch",
        "kubernetes.io/hostname", "kubernetes.io/os", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
    }
)  # fmt: skip
_NODE_LABEL_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_NODE_SIGNERS: Final = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_CLAIM_STATUS: Final = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
_VOLUMES_BY_API: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED_BY_API: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_POD_STATUS: Final = {
    "resourceClaimStatuses": "cannot update resource claim statues",
    "extendedResourceClaimStatus": "cannot update extended resource claim status",
    "nodeAllocatableResourceClaimStatuses": "cannot update node allocatable resource claim statuses",
}


class NodeRestriction:
    """Rejects writes that a node may not make."""

    def __init__(self, core: Core, authorizer: Authorizer) -> None:
        self._core = core
        self._authorizer = authorizer
        self._rules: dict[str, Callable[[str, Admission], None]] = {
            "pods": self._pod,
            "nodes": _node,
            "persistentvolumeclaims": _claim,
            "serviceaccounts": self._service_account,
            "leases.coordination.k8s.io": _lease,
            "csinodes.storage.k8s.io": _csi_node,
            "resourceslices.resource.k8s.io": _slice,
            "certificatesigningrequests.certificates.k8s.io": _signing_request,
            "podcertificaterequests.certificates.k8s.io": self._pod_certificate_request,
        }

    def handles(self, where: Where) -> bool:
        return where[0] in self._rules

    def validate(self, admission: Admission) -> None:
        node = node_of(admission.user)
        if node is None:
            return
        if not node:
            raise admission.denied(f'could not determine node from user "{admission.user.name}"')
        self._rules[admission.served.key](node, admission)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _pod(self, node: str, admission: Admission) -> None:
        operation, subresource = admission.operation, admission.subresource
        if subresource == "status":
            _pod_status(node, admission)
        elif subresource == "eviction":
            if self._stored_pod(admission, admission.name)["spec"].get("nodeName") != node:
                raise admission.denied(f"node {node} can only evict pods with spec.nodeName set to itself")
        elif subresource:
            raise admission.denied(
                f"unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
            )
        elif operation == CREATE:
            self._mirror_pod(node, admission)
        elif operation != DELETE:
            raise admission.denied(
                f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
            )
        elif _spec(admission.old).get("nodeName") != node:
            raise admission.denied(f'node "{node}" can only delete pods with spec.nodeName set to itself')

    def _mirror_pod(self, node: str, admission: Admission) -> None:
        pod = admission.object or {}
        metadata = pod["metadata"]
        if MIRROR not in (metadata.get("annotations") or {}):
            raise admission.denied(
                f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
            )
        if _spec(pod).get("nodeName") != node:
            raise admission.denied(f'node "{node}" can only create pods with spec.nodeName set to itself')
        self._owned_by(node, metadata.get("ownerReferences") or [], admission)
        named = _named_objects(_spec(pod))
        if named:
            raise admission.denied(f'node "{node}" can not create pods that reference {named}')

    def _owned_by(self, node: str, owners: list[Obj], admission: Admission) -> None:
        only = f'node "{node}" can only create pods with'
        if len(owners) > 1:
            raise admission.denied(f"{only} a single owner reference set to itself")
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise admission.denied(f"{only} an owner reference set to itself")
        if not owner.get("controller"):
            raise admission.denied(f"{only} a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            raise admission.denied(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
        entry = self._core.store.get(Key("nodes", "", node))
        if entry is None:
            raise NotFound.of("nodes", "", node)
        uid = objects.decode(entry)["metadata"]["uid"]
        if owner.get("uid") != uid:
            raise admission.denied(f"node {node} UID mismatch: expected {owner.get('uid')} got {uid}")

    def _stored_pod(self, admission: Admission, name: str) -> Obj:
        entry = self._core.store.get(Key("pods", admission.namespace, name))
        if entry is None:
            raise NotFound.of("pods", "", name)
        return objects.decode(entry)

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _service_account(self, node: str, admission: Admission) -> None:
        """A node may request tokens only for its own pods and their audiences."""
        if admission.operation != CREATE or admission.subresource != "token":
            return
        spec = _spec(admission.object)
        bound = spec.get("boundObjectRef") or {}
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
            raise admission.denied("node requested token not bound to a pod")
        if not bound.get("uid"):
            raise admission.denied("node requested token with a pod binding without a uid")
        pod = self._stored_pod(admission, bound["name"])
        if bound["uid"] != pod["metadata"]["uid"]:
            raise admission.denied(
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
        if _spec(pod).get("nodeName") != node:
            raise admission.denied("node requested token bound to a pod scheduled on a different node")
        self._check_audience(spec.get("audiences") or [], pod, admission)

    def _pod_certificate_request(self, node: str, admission: Admission) -> None:
        """A node may request certificates only for the pods that run on it, with the identity that they have."""
        if admission.operation != CREATE or admission.subresource:
            return
        spec = _spec(admission.object)
        if spec.get("nodeName") != node:
            raise admission.denied(f'PodCertificateRequest.Spec.NodeName="{spec.get("nodeName") or ""}" is not the '
                                   f'requesting node "{node}"')  # fmt: skip
        pod = self._stored_pod(admission, spec.get("podName") or "")
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            raise admission.denied("PodCertificateRequest cannot be created for a mirror pod")
        running, account = _spec(pod), _spec(pod).get("serviceAccountName") or "default"
        if running.get("nodeName") != node:
            raise admission.denied(f'pod "{pod["metadata"]["name"]}" is not running on node "{node}"')
        if spec.get("serviceAccountName") != account:
            raise admission.denied(f'the pod runs as service account "{account}"')
        for field, found in (
            ("podUID", pod),
            ("nodeUID", self._stored("nodes", "", node)),
            ("serviceAccountUID", self._stored("serviceaccounts", admission.namespace, account)),
        ):
            uid = found["metadata"]["uid"]
            if spec.get(field) != uid:
                raise admission.denied(f"spec.{field} is {spec.get(field) or ''}, but the object's UID is {uid}")

    def _stored(self, resource: str, namespace: str, name: str) -> Obj:
        entry = self._core.store.get(Key(resource, namespace, name))
        if entry is None:
            raise NotFound.of(resource, "", name)
        return objects.decode(entry)

    def _check_audience(self, audiences: list[str], pod: Obj, admission: Admission) -> None:
        if len(audiences) > 1:
            raise admission.denied("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        if any(self._has_audience(volume, audience, pod["metadata"]) for volume in _spec(pod).get("volumes") or ()):
            return
        verb = "request-serviceaccounts-token-audience"
        asked = Attributes(verb, "", audience, "", admission.namespace, admission.name)
        if not self._authorizer.allows(admission.user, asked):
            user = admission.user.name
            raise admission.denied(f'{user} is not authorized to request tokens for audience "{audience}"')

    def _has_audience(self, volume: Obj, audience: str, pod: Obj) -> bool:
        for source in (volume.get("projected") or {}).get("sources") or ():
            token = source.get("serviceAccountToken")
            if token is not None and (token.get("audience") or "") == audience:
                return True
        driver = (volume.get("csi") or {}).get("driver")
        if "persistentVolumeClaim" in volume:
            driver = self._driver_of(pod["namespace"], volume["persistentVolumeClaim"].get("claimName") or "")
        elif "ephemeral" in volume:
            driver = self._driver_of(pod["namespace"], f"{pod['name']}-{volume['name']}")
        if not driver:
            return False
        requests = _spec(self._object(Key("csidrivers.storage.k8s.io", "", driver))).get("tokenRequests") or ()
        return any((request.get("audience") or "") == audience for request in requests)

    def _driver_of(self, namespace: str, claim: str) -> str:
        volume = _spec(self._object(Key("persistentvolumeclaims", namespace, claim))).get("volumeName") or ""
        source = _spec(self._object(Key("persistentvolumes", "", volume))).get("csi") or {}
        driver: str = source.get("driver") or ""
        return driver

    def _object(self, key: Key) -> Obj:
        entry = self._core.store.get(key) if key.name else None
        return {} if entry is None else objects.decode(entry)


def _spec(obj: Obj | None) -> Obj:
    spec: Obj = (obj or {}).get("spec") or {}
    return spec


def _name(admission: Admission) -> str:
    name: str = admission.name or ((admission.object or {}).get("metadata") or {}).get("name") or ""
    return name


def _named_objects(spec: Obj) -> str:
    """The first kind of API object that the pod references, as messages name it; empty when there is none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(secret_names(spec)):
        return "secrets"
    if any(config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for source, text in _VOLUMES_BY_API.items():
            if source in volume:
                return text
        for item in (volume.get("projected") or {}).get("sources") or ():
            for source, text in _PROJECTED_BY_API.items():
                if source in item:
                    return text
    return ""


def _pod_status(node: str, admission: Admission) -> None:
    new, old = admission.object or {}, admission.old or {}
    if _spec(old).get("nodeName") != node:
        raise admission.denied(f'node "{node}" can only update pod status for pods with spec.nodeName set to itself')
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        raise admission.denied(f'node "{node}" cannot update labels through pod status')
    after, before = new.get("status") or {}, old.get("status") or {}
    for name, text in _POD_STATUS.items():
        if (after.get(name) or None) != (before.get(name) or None):
            raise admission.denied(f'node "{node}" {text}')


def _node(node: str, admission: Admission) -> None:
    name = _name(admission)
    if name != node:
        raise admission.denied(f'node "{node}" is not allowed to modify node "{name}"')
    if admission.operation == DELETE:
        return
    new, old = admission.object or {}, admission.old
    labels = new["metadata"].get("labels") or {}
    if old is None:
        if _spec(new).get("configSource") is not None:
            raise admission.denied(f'node "{node}" is not allowed to create pods with a non-nil configSource')
        forbidden = _forbidden_labels(labels, {})
        if forbidden:
            raise admission.denied(f'node "{node}" is not allowed to set the following labels: {forbidden}')
        return
    source = _spec(new).get("configSource")
    if source is not None and source != _spec(old).get("configSource"):
        raise admission.denied(f'node "{node}" is not allowed to update configSource to a new non-nil configSource')
    if (_spec(new).get("taints") or []) != (_spec(old).get("taints") or []):
        raise admission.denied(f'node "{node}" is not allowed to modify taints')
    if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
        raise admission.denied(f'node "{node}" is not allowed to modify ownerReferences')
    forbidden = _forbidden_labels(labels, old["metadata"].get("labels") or {})
    if forbidden:
        raise admission.denied(f"is not allowed to modify labels: {forbidden}")


def _forbidden_labels(new: Obj, old: Obj) -> str:
    """The changed labels that a node may not set because they influence scheduling, as messages list them."""
    changed = {label for label in new.keys() | old.keys() if new.get(label) != old.get(label)}
    return ", ".join(sorted(label for label in changed if is_forbidden_label(label)))


def is_forbidden_label(label: str) -> bool:
    """Whether a node may not set this label on itself."""
    domain = label.partition("/")[0] if "/" in label else ""
    if _within(domain, (_RESTRICTED,)):
        return True
    return _within(domain, _KUBERNETES_DOMAINS) and not (label in _NODE_LABELS or _within(domain, _NODE_LABEL_DOMAINS))


def _within(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _claim(node: str, admission: Admission) -> None:
    if admission.subresource != "status":
        raise admission.denied("may only update PVC status")
    if admission.operation != UPDATE:
        raise admission.denied(f'unexpected operation "{admission.operation}"')
    if _without_claim_status(admission.object or {}) != _without_claim_status(admission.old or {}):
        raise admission.denied(
            f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
        )


def _without_claim_status(claim: Obj) -> Obj:
    metadata = {n: v for n, v in claim["metadata"].items() if n not in ("resourceVersion", "managedFields")}
    status = {n: v for n, v in (claim.get("status") or {}).items() if n not in _CLAIM_STATUS}
    return {**claim, "metadata": metadata, "status": status}


def _lease(node: str, admission: Admission) -> None:
    if admission.namespace != LEASE_NAMESPACE:
        raise admission.denied(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    if _name(admission) != node:
        raise admission.denied("can only access node lease with the same name as the requesting node")


def _csi_node(node: str, admission: Admission) -> None:
    if _name(admission) != node:
        raise admission.denied("can only access CSINode with the same name as the requesting node")


def _slice(node: str, admission: Admission) -> None:
    if admission.operation == CREATE and _spec(admission.object).get("nodeName") != node:
        raise admission.denied("can only create ResourceSlice with the same NodeName as the requesting node")
    if admission.operation == DELETE and _spec(admission.old).get("nodeName") != node:
        raise admission.denied("can only delete ResourceSlice with the same NodeName as the requesting node")


def _signing_request(node: str, admission: Admission) -> None:
    """A node may request certificates only for its own name."""
    spec = _spec(admission.object)
    if admission.operation != CREATE or spec.get("signerName") not in _NODE_SIGNERS:
        return
    try:
        name = _common_name(spec.get("request") or "")
    except (ValueError, TypeError) as error:
        raise admission.denied(f"unable to parse csr: {error}") from None
    if name != f"{NODE_USER}{node}":
        raise admission.denied(f"can only create a node CSR with CN={NODE_USER}{node}")


def _common_name(request: str) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    found = x509.load_pem_x509_csr(base64.b64decode(request)).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[-1].value) if found else ""
