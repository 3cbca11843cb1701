"""The default roles and bindings of a cluster, as in Kubernetes.

A rule is one line, ``verbs groups resources [names]`` with commas inside; ``-`` is the core group, a line that starts
with ``url`` is about paths. ``_VERBS`` and ``_LINES`` are abbreviations of frequent parts. Every call returns new
objects.
"""

from __future__ import annotations

from typing import Final

from shoal.kube.kinds.bootstrap_rbac_controllers import CONTROLLER_ROLES, OWN_ROLES
from shoal.kube.kinds.rbac import GROUP, aggregated_rules
from shoal.kube.objects import Obj

_VERBS: Final = {
    "read": "get,list,watch",
    "write": "create,delete,deletecollection,patch,update",
    "all": "create,delete,deletecollection,get,list,patch,update,watch",
    "read-update": "get,list,patch,update,watch",
}
_LINES: Final = {
    "events": "create,patch,update -,events.k8s.io events",
    "token-reviews": "create authentication.k8s.io tokenreviews",
    "access-reviews": "create authorization.k8s.io subjectaccessreviews",
}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_LEASES: Final = (
    "create,get,list,update,watch coordination.k8s.io leases",
    "create,get,list,update,watch coordination.k8s.io leasecandidates",
)
_SIGNERS: Final = {
    "legacy-unknown": "kubernetes.io/legacy-unknown",
    "kubelet-serving": "kubernetes.io/kubelet-serving",
    "kube-apiserver-client": "kubernetes.io/kube-apiserver-client",
    "kube-apiserver-client-kubelet": "kubernetes.io/kube-apiserver-client-kubelet",
}

_VIEW: Final = (
    "read - pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status,"
    "endpoints,persistentvolumeclaims,persistentvolumeclaims/status,configmaps",
    "read - limitranges,resourcequotas,bindings,pods/status,resourcequotas/status,namespaces/status,"
    "replicationcontrollers/status,pods/log",
    "read - namespaces",
    "read -,events.k8s.io events",
    "read discovery.k8s.io endpointslices",
    "read apps controllerrevisions,statefulsets,statefulsets/status,statefulsets/scale,daemonsets,daemonsets/status,"
    "deployments,deployments/status,deployments/scale,replicasets,replicasets/status,replicasets/scale",
    "read autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status",
    "read batch jobs,cronjobs,cronjobs/status,jobs/status",
    "read policy poddisruptionbudgets,poddisruptionbudgets/status",
    "read networking.k8s.io networkpolicies,ingresses,ingresses/status",
    "read resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates",
    "read extensions daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,"
    "ingresses/status,networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale",
)
_EDIT: Final = (
    "read - pods/attach,pods/proxy,pods/exec,pods/portforward,secrets,services/proxy",
    "impersonate - serviceaccounts",
    "write - pods,pods/attach,pods/proxy,pods/exec,pods/portforward",
    "create - pods/eviction",
    "write - replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/proxy,"
    "persistentvolumeclaims,configmaps,secrets",
    "create - serviceaccounts/token",
    "write -,events.k8s.io events",
    "write apps statefulsets,statefulsets/scale,daemonsets,deployments,deployments/scale,deployments/rollback,"
    "replicasets,replicasets/scale",
    "write autoscaling horizontalpodautoscalers",
    "write batch jobs,cronjobs",
    "write policy poddisruptionbudgets",
    "write networking.k8s.io networkpolicies,ingresses",
    "all coordination.k8s.io leases",
    "write resource.k8s.io resourceclaims,resourceclaimtemplates",
    "write extensions daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,"
    "replicasets,replicasets/scale,replicationcontrollers/scale",
)
_NODE: Final = (
    "token-reviews",
    "create authorization.k8s.io subjectaccessreviews,localsubjectaccessreviews",
    "read - services",
    "create,get,list,watch - nodes",
    "update,patch - nodes/status",
    "update,patch - nodes",
    "events",
    "read - pods",
    "create,delete - pods",
    "update,patch - pods/status",
    "create - pods/eviction",
    "read - secrets,configmaps",
    "get - persistentvolumeclaims,persistentvolumes",
    "get - endpoints",
    "create,get,list,watch certificates.k8s.io certificatesigningrequests",
    "create,get,list,watch certificates.k8s.io podcertificaterequests",
    "get,create,update,patch,delete coordination.k8s.io leases",
    "get storage.k8s.io volumeattachments",
    "create - serviceaccounts/token",
    "get,update,patch - persistentvolumeclaims/status",
    "read storage.k8s.io csidrivers",
    "get,create,update,patch,delete storage.k8s.io csinodes",
    "read node.k8s.io runtimeclasses",
    "get resource.k8s.io resourceclaims",
    "deletecollection resource.k8s.io resourceslices",
    "get - serviceaccounts",
)
_SCHEDULER: Final = (
    "events",
    "create coordination.k8s.io leases",
    "get,update,list,watch coordination.k8s.io leases kube-scheduler",
    "all coordination.k8s.io leasecandidates",
    "read - nodes",
    "get,list,watch,delete - pods",
    "create - pods/binding,bindings",
    "patch,update - pods/status",
    "read - services,replicationcontrollers",
    "read apps,extensions replicasets",
    "read apps statefulsets",
    "read policy poddisruptionbudgets",
    "read - persistentvolumeclaims,persistentvolumes",
    "token-reviews",
    "access-reviews",
    "read storage.k8s.io csinodes",
    "read storage.k8s.io volumeattachments",
    "read - namespaces",
    "read storage.k8s.io csidrivers",
    "read storage.k8s.io csistoragecapacities",
    "read resource.k8s.io deviceclasses",
    "read-update resource.k8s.io resourceclaims",
    "read-update resource.k8s.io resourceclaims/status",
    "update - pods/finalizers",
    "read resource.k8s.io resourceslices",
    "create,delete resource.k8s.io resourceclaims",
    "read resource.k8s.io devicetaintrules",
)
_CONTROLLER_MANAGER: Final = (
    "events",
    "create coordination.k8s.io leases",
    "get,update coordination.k8s.io leases kube-controller-manager",
    "create - secrets,serviceaccounts",
    "delete - secrets",
    "get - namespaces,secrets,serviceaccounts,configmaps",
    "update - secrets,serviceaccounts",
    "token-reviews",
    "access-reviews",
    "list,watch * *",
    "create - serviceaccounts/token",
)

_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "cluster-admin": ("* * *", "url * *"),
    "system:discovery": (
        "url get /livez,/readyz,/healthz,/version,/version/,/openapi,/openapi/*,/api,/api/*,/apis,/apis/*",
    ),
    "system:monitoring": (
        "url get /metrics,/metrics/slis,/livez,/readyz,/healthz,/livez/*,/readyz/*,/healthz/*,/flagz,/statusz",
        "get - nodes/metrics",
    ),
    "system:basic-user": (
        "create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews",
        "create authentication.k8s.io selfsubjectreviews",
    ),
    "system:cluster-trust-bundle-discovery": ("read certificates.k8s.io clustertrustbundles",),
    "system:public-info-viewer": ("url get /livez,/readyz,/healthz,/version,/version/",),
    "system:aggregate-to-admin": (
        "create authorization.k8s.io localsubjectaccessreviews",
        "all rbac.authorization.k8s.io roles,rolebindings",
    ),
    "system:aggregate-to-edit": _EDIT,
    "system:aggregate-to-view": _VIEW,
    "system:aggregated-metrics-reader": ("read metrics.k8s.io pods,nodes",),
    "system:node": _NODE,
    "system:node-problem-detector": ("get - nodes", "patch - nodes/status", "events"),
    "system:node-bootstrapper": ("create,get,list,watch certificates.k8s.io certificatesigningrequests",),
    "system:node-proxier": (
        "list,watch - services,endpoints",
        "read - nodes",
        "events",
        "list,watch networking.k8s.io servicecidrs",
        "list,watch discovery.k8s.io endpointslices",
    ),
    "system:auth-delegator": ("token-reviews", "access-reviews"),
    "system:heapster": ("read - events,pods,nodes,namespaces", "read extensions deployments"),
    "system:kube-aggregator": ("read - services,endpoints",),
    "system:kube-controller-manager": _CONTROLLER_MANAGER,
    "system:kube-dns": ("list,watch - endpoints,services",),
    "system:kube-scheduler": _SCHEDULER,
    "shoal:service-proxy": (  # what Kubernetes' proxy does not do: addresses of balancers, and the network of sandboxes
        "get,create,patch - services",
        "patch - services/status",
        "list,watch - pods,namespaces",
        "list,watch networking.k8s.io networkpolicies",
    ),
    "shoal:simulated-nodes": (  # one process that simulates all of its nodes
        "all - nodes",
        "patch,update - nodes/status",
        "get,list,watch,delete - pods",
        "patch,update - pods/status",
        "all coordination.k8s.io leases",
        "events",
    ),
    "system:kubelet-api-admin": (
        "read - nodes",
        "proxy - nodes",
        "* - nodes/proxy,nodes/metrics,nodes/stats,nodes/log",
        "* - nodes/pods,nodes/healthz,nodes/configz",
    ),
    "system:persistent-volume-provisioner": (
        "get,list,watch,create,delete - persistentvolumes",
        "get,list,watch,update - persistentvolumeclaims",
        "read storage.k8s.io storageclasses",
        "watch - events",
        "events",
    ),
    "system:service-account-issuer-discovery": (
        "url get /.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/",
    ),
    "system:volume-scheduler": (
        "read-update - persistentvolumes",
        "read storage.k8s.io storageclasses",
        "read-update - persistentvolumeclaims",
    ),
    **{
        f"system:certificates.k8s.io:certificatesigningrequests:{name}": (
            f"create certificates.k8s.io certificatesigningrequests/{name}",
        )
        for name in ("nodeclient", "selfnodeclient")
    },
    **{
        f"system:certificates.k8s.io:{name}-approver": (f"approve certificates.k8s.io signers {signer}",)
        for name, signer in _SIGNERS.items()
    },
}
# Aggregation: a role's own selector, and the label by which a larger role selects it.
_AGGREGATED: Final = {"admin": "", "edit": "admin", "view": "edit"}
_LABELLED: Final[dict[str, tuple[str, ...]]] = {
    **{f"system:aggregate-to-{name}": (name,) for name in _AGGREGATED},
    "system:aggregated-metrics-reader": ("admin", "edit", "view"),
}

# The API server as a client of kubelets: user and group of its certificate. The group gives no right but to kubelets,
# and no other certificate of the cluster's authority has either name.
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
KUBELET_CLIENT_GROUP: Final = "shoal:kubelet-api-admins"

_CLUSTER_BINDINGS: Final = {
    "cluster-admin": "Group system:masters",
    "system:basic-user": "Group system:authenticated",
    "system:discovery": "Group system:authenticated",
    "system:kube-controller-manager": "User system:kube-controller-manager",
    "system:kubelet-api-admin": f"Group {KUBELET_CLIENT_GROUP}",
    "system:kube-dns": "ServiceAccount kube-dns",
    "system:kube-scheduler": "User system:kube-scheduler",
    "shoal:service-proxy": "User system:kube-proxy",
    "shoal:simulated-nodes": "User shoal:simulated-nodes",
    "system:monitoring": "Group system:monitoring",
    "system:node": "",  # nodes are authorized by name, not by group
    "system:node-proxier": "User system:kube-proxy",
    "system:cluster-trust-bundle-discovery": "Group system:serviceaccounts",
    "system:public-info-viewer": "Group system:authenticated,Group system:unauthenticated",
    "system:service-account-issuer-discovery": "Group system:serviceaccounts",
    "system:volume-scheduler": "User system:kube-scheduler",
}
_NAMESPACED_ROLES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("kube-system", "extension-apiserver-authentication-reader"): (
        "read - configmaps extension-apiserver-authentication",
    ),
    ("kube-system", "system:controller:bootstrap-signer"): ("read - secrets",),
    ("kube-system", "system:controller:cloud-provider"): ("create,get,list,watch - configmaps",),
    ("kube-system", "system:controller:token-cleaner"): ("get,list,watch,delete - secrets", "events"),
    ("kube-system", "system::leader-locking-kube-controller-manager"): _LEASES,
    ("kube-system", "system::leader-locking-kube-scheduler"): _LEASES,
    ("kube-public", "system:controller:bootstrap-signer"): (
        "read - configmaps",
        "update - configmaps cluster-info",
        "events",
    ),
}
# namespace, name, role, subjects
_NAMESPACED_BINDINGS: Final = (
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        "User system:kube-controller-manager,User system:kube-scheduler",
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        "User system:kube-controller-manager,ServiceAccount kube-controller-manager,"
        "ServiceAccount leader-election-controller",
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        "User system:kube-scheduler,ServiceAccount kube-scheduler",
    ),
    *(
        (namespace, f"system:controller:{name}", f"system:controller:{name}", f"ServiceAccount {name}")
        for namespace, name in (
            ("kube-system", "bootstrap-signer"),
            ("kube-system", "cloud-provider"),
            ("kube-system", "token-cleaner"),
            ("kube-public", "bootstrap-signer"),
        )
    ),
)


def _words(text: str) -> list[str]:
    return sorted("" if word == "-" else word for word in text.split(","))


def _rule(line: str) -> Obj:
    verbs, *rest = _LINES.get(line, line).split(" ")
    if verbs == "url":
        return {"verbs": _words(rest[0]), "nonResourceURLs": _words(rest[1])}
    rule = {
        "verbs": _words(_VERBS.get(verbs, verbs)),
        "apiGroups": _words(rest[0]),
        "resources": _words(rest[1]),
    }
    if len(rest) > 2:
        rule["resourceNames"] = _words(rest[2])
    return rule


def _object(kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Obj:
    metadata: Obj = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **(labels or {})},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _binding(kind: str, name: str, role_kind: str, role: str, subjects: str, namespace: str = "") -> Obj:
    made = _object(kind, name, namespace)
    made["roleRef"] = {"apiGroup": GROUP, "kind": role_kind, "name": role}
    listed = [_subject(text) for text in subjects.split(",") if text]
    if listed:
        made["subjects"] = listed
    return made


def _subject(text: str) -> Obj:
    kind, name = text.split(" ")
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": "kube-system"}
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def _role(kind: str, name: str, lines: tuple[str, ...], namespace: str = "") -> Obj:
    made = _object(kind, name, namespace, {_AGGREGATE + larger: "true" for larger in _LABELLED.get(name, ())})
    made["rules"] = [_rule(line) for line in lines]
    return made


def _aggregated(name: str, larger: str) -> Obj:
    made = _object("ClusterRole", name, labels={_AGGREGATE + larger: "true"} if larger else None)
    made["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + name: "true"}}]}
    return made


def cluster_roles() -> list[Obj]:
    """Every default ClusterRole; aggregated ones already have their rules."""
    roles = [_role("ClusterRole", name, lines) for name, lines in _ROLES.items()]
    roles += [_role("ClusterRole", f"system:controller:{n}", lines) for n, lines in CONTROLLER_ROLES.items()]
    roles += [_role("ClusterRole", f"shoal:controller:{n}", lines) for n, lines in OWN_ROLES.items()]
    for name in ("view", "edit", "admin"):  # each aggregates the one before it
        made = _aggregated(name, _AGGREGATED[name])
        made["rules"] = [dict(rule) for rule in aggregated_rules(made, roles)]
        roles.append(made)
    return roles


def cluster_role_bindings() -> list[Obj]:
    bindings = [
        _binding("ClusterRoleBinding", name, "ClusterRole", name, subjects)
        for name, subjects in _CLUSTER_BINDINGS.items()
    ]
    named = [(f"system:controller:{name}", name) for name in CONTROLLER_ROLES]
    named += [(f"shoal:controller:{name}", name) for name in OWN_ROLES]
    for name, controller in named:
        bindings.append(_binding("ClusterRoleBinding", name, "ClusterRole", name, f"ServiceAccount {controller}"))
    return bindings


def node_rules() -> list[Obj]:
    """The permissions of every node, limited to its own objects."""
    return [_rule(line) for line in _NODE]


def roles() -> list[Obj]:
    return [_role("Role", name, lines, namespace) for (namespace, name), lines in _NAMESPACED_ROLES.items()]


def role_bindings() -> list[Obj]:
    return [
        _binding("RoleBinding", name, "Role", role, subjects, namespace)
        for namespace, name, role, subjects in _NAMESPACED_BINDINGS
    ]


def bootstrap_objects() -> list[Obj]:
    """All objects, roles before the bindings that refer to them."""
    return [*cluster_roles(), *roles(), *cluster_role_bindings(), *role_bindings()]
