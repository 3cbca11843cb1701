"""The built-in resources: one row each, with its discovery data and the options of the generic verbs.

The schema package has kinds and fields, but no plurals, scopes, short names or update rules; this table has them. A
custom resource definition becomes a ``Resource`` at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY: Final = ("create",)
READ_WRITE: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource such as ``pods/eviction``. Its kind may be of another group (Scale, Eviction)."""

    name: str
    kind: str
    verbs: tuple[str, ...] = READ_WRITE
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource in one served version. Objects of all versions share ``storage_key`` and are stored as one kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    generation: bool = False  # metadata.generation counts changes of the spec
    status: bool = False  # has a status subresource: the main path ignores status, /status ignores the rest
    status_on_create: bool = False  # a create may carry status (nodes register with theirs)
    blind_update: bool = True  # a PUT without resourceVersion is allowed
    create_on_update: bool = False  # a PUT of an absent object creates it
    returns_deleted: bool = False  # DELETE returns the object instead of a Status
    stored: bool = True  # False for reviews, which are answered and not stored
    custom: bool = False
    preferred: bool = True  # False: another version of the same kind is preferred
    storage_key: str = field(default="")

    def __post_init__(self) -> None:
        if not self.storage_key:
            object.__setattr__(self, "storage_key", f"{self.plural}.{self.group}" if self.group else self.plural)
        if not self.singular:
            object.__setattr__(self, "singular", self.kind.lower())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return self.kind + "List"

    @property
    def qualified(self) -> str:
        """``deployments.apps``: how messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def subresource(self, name: str) -> Subresource | None:
        for sub in self.subresources:
            if sub.name == name:
                return sub
        return None


_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")


def _status(kind: str) -> Subresource:
    return Subresource("status", kind)


def _rows() -> Iterator[Resource]:
    yield from _core()
    yield from _apps_and_batch()
    yield from _networking()
    yield from _policy_and_scheduling()
    yield from _access()
    yield from _extension()
    yield from _storage()
    yield from _devices()


def _core() -> Iterator[Resource]:
    def core(plural: str, kind: str, **more: object) -> Resource:
        return Resource(group="", version="v1", plural=plural, kind=kind, **more)  # type: ignore[arg-type]

    connect = ("create", "get")
    proxy = ("create", "delete", "get", "patch", "update")
    yield core("bindings", "Binding", verbs=CREATE_ONLY, stored=False)
    yield core(
        "componentstatuses",
        "ComponentStatus",
        namespaced=False,
        short_names=("cs",),
        verbs=("get", "list"),
    )
    yield core("configmaps", "ConfigMap", short_names=("cm",))
    yield core("endpoints", "Endpoints", singular="endpoints", short_names=("ep",), create_on_update=True)
    yield core("events", "Event", short_names=("ev",), create_on_update=True)
    yield core("limitranges", "LimitRange", short_names=("limits",), create_on_update=True)
    yield core(
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        verbs=tuple(v for v in ALL_VERBS if v != "deletecollection"),
        subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
        status=True,
        returns_deleted=True,
    )
    yield core(
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=(Subresource("proxy", "NodeProxyOptions", proxy), _status("Node")),
        status=True,
        status_on_create=True,
    )
    yield core(
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=(_status("PersistentVolumeClaim"),),
        status=True,
        returns_deleted=True,
    )
    yield core(
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=(_status("PersistentVolume"),),
        status=True,
        returns_deleted=True,
    )
    yield core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        generation=True,
        status=True,
        returns_deleted=True,
        subresources=(
            Subresource("attach", "PodAttachOptions", connect),
            Subresource("binding", "Binding", CREATE_ONLY),
            Subresource("ephemeralcontainers", "Pod"),
            Subresource("eviction", "Eviction", CREATE_ONLY, "policy", "v1"),
            Subresource("exec", "PodExecOptions", connect),
            Subresource("log", "Pod", ("get",)),
            Subresource("portforward", "PodPortForwardOptions", connect),
            Subresource("proxy", "PodProxyOptions", proxy),
            Subresource("resize", "Pod"),
            _status("Pod"),
        ),
    )
    yield core("podtemplates", "PodTemplate", generation=True, returns_deleted=True)
    yield core(
        "replicationcontrollers",
        "ReplicationController",
        short_names=("rc",),
        categories=("all",),
        generation=True,
        status=True,
        subresources=(_SCALE, _status("ReplicationController")),
    )
    yield core(
        "resourcequotas",
        "ResourceQuota",
        short_names=("quota",),
        subresources=(_status("ResourceQuota"),),
        status=True,
        returns_deleted=True,
    )
    yield core("secrets", "Secret")
    yield core(
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
        returns_deleted=True,
        subresources=(Subresource("token", "TokenRequest", CREATE_ONLY, "authentication.k8s.io", "v1"),),
    )
    yield core(
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        status=True,
        create_on_update=True,
        returns_deleted=True,
        subresources=(Subresource("proxy", "ServiceProxyOptions", proxy), _status("Service")),
    )


def _apps_and_batch() -> Iterator[Resource]:
    yield Resource(group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision")
    for plural, kind, short, scaled in (
        ("daemonsets", "DaemonSet", "ds", False),
        ("deployments", "Deployment", "deploy", True),
        ("replicasets", "ReplicaSet", "rs", True),
        ("statefulsets", "StatefulSet", "sts", True),
    ):
        yield Resource(
            group="apps",
            version="v1",
            plural=plural,
            kind=kind,
            short_names=(short,),
            categories=("all",),
            generation=True,
            status=True,
            subresources=(_SCALE, _status(kind)) if scaled else (_status(kind),),
        )
    for plural, kind, short_names in (("cronjobs", "CronJob", ("cj",)), ("jobs", "Job", ())):
        yield Resource(
            group="batch",
            version="v1",
            plural=plural,
            kind=kind,
            short_names=short_names,
            categories=("all",),
            generation=True,
            status=True,
            subresources=(_status(kind),),
        )
    for version in ("v2", "v1"):
        yield Resource(
            group="autoscaling",
            version=version,
            plural="horizontalpodautoscalers",
            kind="HorizontalPodAutoscaler",
            short_names=("hpa",),
            categories=("all",),
            generation=True,
            status=True,
            subresources=(_status("HorizontalPodAutoscaler"),),
            preferred=version == "v2",
        )


def _networking() -> Iterator[Resource]:
    yield Resource(
        group="discovery.k8s.io", version="v1", plural="endpointslices", kind="EndpointSlice", generation=True
    )
    yield Resource(
        group="networking.k8s.io",
        version="v1",
        plural="ingressclasses",
        kind="IngressClass",
        namespaced=False,
        generation=True,
    )
    yield Resource(
        group="networking.k8s.io",
        version="v1",
        plural="ingresses",
        kind="Ingress",
        short_names=("ing",),
        generation=True,
        status=True,
        subresources=(_status("Ingress"),),
    )
    yield Resource(
        group="networking.k8s.io",
        version="v1",
        plural="ipaddresses",
        kind="IPAddress",
        namespaced=False,
        short_names=("ip",),
    )
    yield Resource(
        group="networking.k8s.io",
        version="v1",
        plural="networkpolicies",
        kind="NetworkPolicy",
        short_names=("netpol",),
        generation=True,
    )
    yield Resource(
        group="networking.k8s.io",
        version="v1",
        plural="servicecidrs",
        kind="ServiceCIDR",
        namespaced=False,
        status=True,
        subresources=(_status("ServiceCIDR"),),
    )


def _policy_and_scheduling() -> Iterator[Resource]:
    yield Resource(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        generation=True,
        status=True,
        blind_update=False,
        subresources=(_status("PodDisruptionBudget"),),
    )
    yield Resource(
        group="scheduling.k8s.io",
        version="v1",
        plural="priorityclasses",
        kind="PriorityClass",
        namespaced=False,
        short_names=("pc",),
        generation=True,
    )
    yield Resource(
        group="coordination.k8s.io",
        version="v1",
        plural="leases",
        kind="Lease",
        blind_update=False,
        create_on_update=True,
    )
    yield Resource(
        group="events.k8s.io",
        version="v1",
        plural="events",
        kind="Event",
        short_names=("ev",),
        create_on_update=True,
        storage_key="events",
    )
    yield Resource(
        group="node.k8s.io",
        version="v1",
        plural="runtimeclasses",
        kind="RuntimeClass",
        namespaced=False,
        blind_update=False,
        create_on_update=True,
    )
    for plural, kind in (
        ("flowschemas", "FlowSchema"),
        ("prioritylevelconfigurations", "PriorityLevelConfiguration"),
    ):
        yield Resource(
            group="flowcontrol.apiserver.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=False,
            generation=True,
            status=True,
            subresources=(_status(kind),),
        )


def _access() -> Iterator[Resource]:
    for plural, kind, namespaced in (
        ("clusterrolebindings", "ClusterRoleBinding", False),
        ("clusterroles", "ClusterRole", False),
        ("rolebindings", "RoleBinding", True),
        ("roles", "Role", True),
    ):
        yield Resource(
            group="rbac.authorization.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=namespaced,
            create_on_update=True,
        )
    for plural, kind in (("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")):
        yield Resource(
            group="authentication.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=False,
            verbs=CREATE_ONLY,
            stored=False,
        )
    for plural, kind, namespaced in (
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ):
        yield Resource(
            group="authorization.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=namespaced,
            verbs=CREATE_ONLY,
            stored=False,
        )
    yield Resource(
        group="certificates.k8s.io",
        version="v1",
        plural="certificatesigningrequests",
        kind="CertificateSigningRequest",
        namespaced=False,
        short_names=("csr",),
        status=True,
        subresources=(
            Subresource("approval", "CertificateSigningRequest"),
            _status("CertificateSigningRequest"),
        ),
    )
    yield Resource(
        group="certificates.k8s.io",
        version="v1",
        plural="clustertrustbundles",
        kind="ClusterTrustBundle",
        namespaced=False,
    )
    yield Resource(
        group="certificates.k8s.io",
        version="v1",
        plural="podcertificaterequests",
        kind="PodCertificateRequest",
        status=True,
        subresources=(_status("PodCertificateRequest"),),
    )


def _extension() -> Iterator[Resource]:
    yield Resource(
        group="apiextensions.k8s.io",
        version="v1",
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        generation=True,
        status=True,
        subresources=(_status("CustomResourceDefinition"),),
    )
    yield Resource(
        group="apiregistration.k8s.io",
        version="v1",
        plural="apiservices",
        kind="APIService",
        namespaced=False,
        categories=("api-extensions",),
        status=True,
        subresources=(_status("APIService"),),
    )
    yield Resource(
        group="storagemigration.k8s.io",
        version="v1",
        plural="storageversionmigrations",
        kind="StorageVersionMigration",
        namespaced=False,
        blind_update=False,
        status=True,
        subresources=(_status("StorageVersionMigration"),),
    )
    for plural, kind, has_status in (
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", False),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", True),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    ):
        yield Resource(
            group="admissionregistration.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=False,
            categories=("api-extensions",),
            generation=True,
            status=has_status,
            blind_update=False,
            subresources=(_status(kind),) if has_status else (),
        )


def _storage() -> Iterator[Resource]:
    for plural, kind, namespaced, short_names, has_status in (
        ("csidrivers", "CSIDriver", False, (), False),
        ("csinodes", "CSINode", False, (), False),
        ("csistoragecapacities", "CSIStorageCapacity", True, (), False),
        ("storageclasses", "StorageClass", False, ("sc",), False),
        ("volumeattachments", "VolumeAttachment", False, (), True),
        ("volumeattributesclasses", "VolumeAttributesClass", False, ("vac",), False),
    ):
        yield Resource(
            group="storage.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=namespaced,
            short_names=short_names,
            status=has_status,
            blind_update=plural in ("storageclasses", "volumeattributesclasses"),
            returns_deleted=plural != "csistoragecapacities",
            subresources=(_status(kind),) if has_status else (),
        )


def _devices() -> Iterator[Resource]:
    for plural, kind, namespaced, has_status in (
        ("deviceclasses", "DeviceClass", False, False),
        ("devicetaintrules", "DeviceTaintRule", False, True),
        ("resourceclaims", "ResourceClaim", True, True),
        ("resourceclaimtemplates", "ResourceClaimTemplate", True, False),
        ("resourceslices", "ResourceSlice", False, False),
    ):
        yield Resource(
            group="resource.k8s.io",
            version="v1",
            plural=plural,
            kind=kind,
            namespaced=namespaced,
            generation=plural in ("deviceclasses", "devicetaintrules", "resourceslices"),
            blind_update=plural != "devicetaintrules",
            status=has_status,
            returns_deleted=True,
            subresources=(_status(kind),) if has_status else (),
        )


BUILTIN: Final[tuple[Resource, ...]] = tuple(_rows())
