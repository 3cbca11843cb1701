"""The node authorizer. A node may use its own Node, Lease and CSINode, the pods bound to it, and what those pods need.

The store's index of pods by node, which is always current, gives the pods of a node; the references of a pod are
computed once per revision. Without requests from nodes this module costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.apiserver import objects
from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.authz.pod_references import Reference, references, volume_secrets
from shoal.apiserver.authz.rules import Rule
from shoal.apiserver.user import User
from shoal.errors import ApiError
from shoal.kube import fieldselector
from shoal.kube.objects import Obj
from shoal.store import Entry, Key, Store

NODE_USER = "system:node:"
NODE_GROUP = "system:nodes"
LEASE_NAMESPACE = "kube-node-lease"
_KNOWN_PODS = 50_000
_OWN_OBJECT_VERBS = frozenset({"get", "create", "update", "patch", "delete"})

Verdict = tuple[bool, str]
ALLOWED: Verdict = (True, "")
NO_OPINION: Verdict = (False, "")


def node_of(user: User) -> str | None:
    """The node name of the user; None when the user is not a node."""
    if user.name.startswith(NODE_USER) and NODE_GROUP in user.groups:
        return user.name.removeprefix(NODE_USER)
    return None


class NodeAuthorizer:
    """Decides about requests of nodes. A denial here is not final: RBAC may still allow the request."""

    def __init__(self, store: Store, rules: tuple[Rule, ...]) -> None:
        self._store = store
        self._rules = rules
        self._references: dict[Key, tuple[int, frozenset[Reference]]] = {}  # of pods, with their state
        self._by_resource: dict[tuple[str, str], Callable[[str, Attributes], Verdict]] = {
            ("", "secrets"): self._read,
            ("", "configmaps"): self._read,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._get,
            ("resource.k8s.io", "resourceclaims"): self._get,
            ("storage.k8s.io", "volumeattachments"): self._get,
            ("", "serviceaccounts"): self._service_account,
            ("coordination.k8s.io", "leases"): _lease,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("", "nodes"): _node,
            ("", "pods"): self._pod,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate_request,
        }

    def decide(self, node: str, asked: Attributes) -> Verdict:
        """Whether the node may make the request, and the reason if not."""
        if not node:
            return False, f'unknown node for user "{NODE_USER}"'
        if not asked.path:
            decide = self._by_resource.get((asked.group, asked.resource))
            if decide is not None:
                return decide(node, asked)
            allowed = any(
                rule.allows(asked.verb, asked.group, asked.resource, asked.subresource, asked.name)
                for rule in self._rules
            )
            return (allowed, "")
        return NO_OPINION

    # -- kinds of access -------------------------------------------------------------------------------------------

    def _read(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb not in ("get", "list", "watch"):
            return False, "can only read resources of this type"
        if asked.subresource:
            return False, "cannot read subresource"
        if not asked.namespace:
            return False, "can only read namespaced object of this type"
        return self._related(node, asked)

    def _get(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb != "get":
            return False, "can only get individual resources of this type"
        if asked.subresource:
            return False, "cannot get subresource"
        return self._related(node, asked)

    def _claim(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource != "status":
            return self._get(node, asked)
        if asked.verb not in ("update", "patch"):
            return False, "can only get/update/patch this type"
        return self._related(node, asked)

    def _service_account(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb == "get" and not asked.subresource:
            return self._read(node, asked)
        if asked.verb != "create" or not asked.name:
            return False, "can only create tokens for individual service accounts"
        if asked.subresource != "token":
            return False, "can only create token subresource of serviceaccount"
        return self._related(node, asked)

    def _slice(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource:
            return False, "cannot authorize ResourceSlice subresources"
        if asked.verb == "create":
            return ALLOWED  # admission checks which node it belongs to
        if asked.verb in ("get", "update", "patch", "delete"):
            return self._related(node, asked)
        if asked.verb in ("watch", "list", "deletecollection"):
            if _selects(asked, "spec.nodeName", node):
                return ALLOWED
            return False, "can only list/watch/deletecollection resourceslices with nodeName field selector"
        return False, (
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, "
            "delete, deletecollection"
        )

    def _pod_certificate_request(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource:
            return NO_OPINION
        if asked.verb == "create":
            return ALLOWED  # for its own pods only; admission checks it
        if asked.verb in ("list", "watch") and _selects(asked, "spec.nodeName", node):
            return ALLOWED
        if asked.verb in ("get", "list", "watch") and asked.name:
            return self._related(node, asked)
        if asked.verb in ("list", "watch"):
            return False, "can only list/watch podcertificaterequests with spec.nodeName field selector"
        return NO_OPINION

    def _pod(self, node: str, asked: Attributes) -> Verdict:
        verb, subresource = asked.verb, asked.subresource
        if not subresource:
            if verb == "get":
                return self._get(node, asked)
            if verb in ("list", "watch"):
                if _selects(asked, "spec.nodeName", node):
                    return ALLOWED
                if asked.name:
                    return self._related(node, asked)
                return False, "can only list/watch pods with spec.nodeName field selector"
            if verb in ("create", "delete"):
                return ALLOWED  # of its own mirror pods only; admission checks it
        if (subresource == "status" and verb in ("update", "patch")) or (
            subresource == "eviction" and verb == "create"
        ):
            return ALLOWED
        return NO_OPINION

    # -- relations -------------------------------------------------------------------------------------------------

    def _related(self, node: str, asked: Attributes) -> Verdict:
        if not asked.name:
            return False, "No Object name found"
        if self._is_related(node, asked.resource, asked.namespace, asked.name):
            return ALLOWED
        return False, f"no relationship found between node '{node}' and this object"

    def _is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        if resource == "pods":
            entry = self._store.get(Key("pods", namespace, name))
            return entry is not None and entry.attrs.fields.get("spec.nodeName") == node
        if resource == "volumeattachments":
            return self._names_node(Key("volumeattachments.storage.k8s.io", "", name), node)
        if resource == "podcertificaterequests":
            return self._names_node(Key("podcertificaterequests.certificates.k8s.io", namespace, name), node)
        if resource == "resourceslices":
            return self._names_node(Key("resourceslices.resource.k8s.io", "", name), node)
        if resource == "persistentvolumes":
            return self._volume_is_used(node, name)
        if self._pod_names(node, namespace, (resource, name)):
            return True
        return resource == "secrets" and self._secret_of_volume(node, namespace, name)

    def _names_node(self, key: Key, node: str) -> bool:
        return (self._object(key).get("spec") or {}).get("nodeName") == node

    def _volume_is_used(self, node: str, name: str) -> bool:
        claim = (self._object(Key("persistentvolumes", "", name)).get("spec") or {}).get("claimRef") or {}
        reference = ("persistentvolumeclaims", claim.get("name") or "")
        return self._pod_names(node, claim.get("namespace") or "", reference)

    def _secret_of_volume(self, node: str, namespace: str, name: str) -> bool:
        """Whether a pod of the node uses a claim whose volume needs the secret."""
        for entry in self._pods(node):
            for resource, claim in self._references_of(entry):
                if resource != "persistentvolumeclaims":
                    continue
                volume = self._volume_of(entry.key.namespace, claim)
                if (namespace, name) in volume_secrets(volume):
                    return True
        return False

    def _volume_of(self, namespace: str, claim: str) -> Obj:
        wanted = (self._object(Key("persistentvolumeclaims", namespace, claim)).get("spec") or {}).get("volumeName")
        volume = self._object(Key("persistentvolumes", "", wanted)) if wanted else {}
        claimed = (volume.get("spec") or {}).get("claimRef") or {}
        # the volume has to agree: a claim may name any volume
        return volume if (claimed.get("namespace"), claimed.get("name")) == (namespace, claim) else {}

    def _pod_names(self, node: str, namespace: str, reference: Reference) -> bool:
        return any(reference in self._references_of(entry) for entry in self._pods(node, namespace))

    def _pods(self, node: str, namespace: str | None = None) -> tuple[Entry, ...]:
        return tuple(self._store.range("pods", namespace, index=f"@spec.nodeName={node}").entries)

    def _references_of(self, entry: Entry) -> frozenset[Reference]:
        known, state = self._references.get(entry.key), hash(entry.value)
        if known is not None and known[0] == state:
            return known[1]
        found = references(objects.decode(entry))
        if len(self._references) >= _KNOWN_PODS:
            self._references.clear()
        self._references[entry.key] = (state, found)
        return found

    def _object(self, key: Key) -> Obj:
        entry = self._store.get(key)
        return {} if entry is None else objects.decode(entry)


def _lease(node: str, asked: Attributes) -> Verdict:
    if asked.verb not in _OWN_OBJECT_VERBS:
        return False, "can only get, create, update, patch, or delete a node lease"
    if asked.namespace != LEASE_NAMESPACE:
        return False, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    if asked.verb != "create" and asked.name != node:
        return False, "can only access node lease with the same name as the requesting node"
    return ALLOWED


def _csi_node(node: str, asked: Attributes) -> Verdict:
    if asked.subresource:
        return False, "cannot authorize CSINode subresources"
    if asked.verb not in _OWN_OBJECT_VERBS:
        return False, "can only get, create, update, patch, or delete a CSINode"
    if asked.verb != "create" and asked.name != node:
        return False, "can only access CSINode with the same name as the requesting node"
    return ALLOWED


def _node(node: str, asked: Attributes) -> Verdict:
    if not asked.subresource:
        if asked.verb in ("create", "update", "patch"):
            return ALLOWED  # of its own object only; admission checks it
        if asked.verb in ("get", "list", "watch"):
            if asked.name == node:
                return ALLOWED
            if not asked.name:
                return False, f"node '{node}' cannot read all nodes, only its own Node object"
            return False, f"node '{node}' cannot read '{asked.name}', only its own Node object"
    elif asked.subresource == "status" and asked.verb in ("update", "patch"):
        return ALLOWED
    return NO_OPINION


def _selects(asked: Attributes, field: str, value: str) -> bool:
    if not asked.fields:
        return False
    try:
        return fieldselector.parse(asked.fields).exact(field) == value
    except ApiError:
        return False
