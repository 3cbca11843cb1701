"""Tables of access control and API extensions: bindings, signing requests, webhooks, policies, definitions."""

from __future__ import annotations

from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, CREATED_AT, NAME, Cells, Printer, column
from shoal.kube.tables.text import (
    NONE,
    UNSET,
    age,
    condition,
    created_at,
    human_duration,
    is_true,
    joined,
    name,
    selector,
    spec,
    status,
)


def _binding(obj: Obj, now: float) -> Cells:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()
    accounts = [f"{s.get('namespace') or ''}/{s.get('name')}" for s in subjects if s.get("kind") == "ServiceAccount"]
    return [
        name(obj),
        f"{role.get('kind') or ''}/{role.get('name') or ''}",
        age(obj, now),
        joined((s.get("name") for s in subjects if s.get("kind") == "User"), ", "),
        joined((s.get("name") for s in subjects if s.get("kind") == "Group"), ", "),
        ", ".join(accounts),
    ]


def _trust_bundle(obj: Obj, now: float) -> Cells:
    return [name(obj), spec(obj).get("signerName") or NONE]


def _pod_certificate_request(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    conditions = (obj.get("status") or {}).get("conditions") or ()
    state = next((each.get("type", "") for each in conditions), "Pending")
    names = [wanted.get(field) or "" for field in ("podName", "serviceAccountName", "nodeName", "signerName")]
    return [name(obj), *names, state, age(obj, now)]


def _signing_request(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    expiration = wanted.get("expirationSeconds")
    return [
        name(obj),
        age(obj, now),
        wanted.get("signerName") or NONE,
        wanted.get("username") or "",
        NONE if expiration is None else human_duration(expiration),
        _signing_state(status(obj)),
    ]


def _signing_state(current: Obj) -> str:
    kinds = {found.get("type") for found in current.get("conditions") or ()}
    parts = ["Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"]
    if "Failed" in kinds:
        parts.append("Failed")
    if current.get("certificate"):
        parts.append("Issued")
    return ",".join(parts)


def _webhooks(obj: Obj, now: float) -> Cells:
    return [name(obj), len(obj.get("webhooks") or ()), age(obj, now)]


def _policy(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    rules = wanted.get("validations") or wanted.get("mutations") or ()
    kind = wanted.get("paramKind")
    parameters = f"{kind.get('apiVersion') or ''}/{kind.get('kind') or ''}" if kind else UNSET
    return [name(obj), len(rules), parameters, age(obj, now)]


def _policy_binding(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    reference = wanted.get("paramRef") or {}
    parameters = UNSET
    if reference.get("name"):
        parameters = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif reference.get("selector") is not None:
        parameters = selector(reference["selector"]) or NONE
    return [name(obj), wanted.get("policyName") or "", parameters, age(obj, now)]


def _definition(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    names = wanted.get("names") or {}
    versions = sorted(
        version["name"] + ("(storage)" if version.get("storage") else "")
        for version in wanted.get("versions") or ()
        if version.get("served")
    )
    return [
        name(obj),
        wanted.get("scope") or "",
        ",".join(versions),
        created_at(obj),
        wanted.get("group") or "",
        names.get("kind") or "",
        joined(names.get("shortNames")),
        is_true(status(obj), "Established"),
    ]


def _api_service(obj: Obj, now: float) -> Cells:
    service = spec(obj).get("service")
    found = condition(status(obj), "Available")
    available = "Unknown" if found is None else found.get("status") or ""
    if found is not None and available != "True" and found.get("reason"):
        available = f"{available} ({found['reason']})"
    return [
        name(obj),
        f"{service.get('namespace') or ''}/{service.get('name') or ''}" if service else "Local",
        available,
        age(obj, now),
    ]


_BINDING: Final = Printer(
    [
        NAME,
        column("Role", "Role that is granted."),
        AGE,
        column("Users", "Users it is granted to.", wide=True),
        column("Groups", "Groups it is granted to.", wide=True),
        column("ServiceAccounts", "Service accounts it is granted to.", wide=True),
    ],
    _binding,
)
_WEBHOOKS: Final = Printer([NAME, column("Webhooks", "Number of webhooks.", "integer"), AGE], _webhooks)
_PARAM_KIND: Final = column("ParamKind", "Kind of the objects that hold its parameters.")
_POLICY_BINDING: Final = Printer(
    [NAME, column("PolicyName", "Policy that it applies."), column("ParamRef", "Object with the parameters."), AGE],
    _policy_binding,
)

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

PRINTERS: Final = {
    (_RBAC, "RoleBinding"): _BINDING,
    (_RBAC, "ClusterRoleBinding"): _BINDING,
    ("certificates.k8s.io", "CertificateSigningRequest"): Printer(
        [
            NAME,
            AGE,
            column("SignerName", "Signer of the certificate."),
            column("Requestor", "User that made the request."),
            column("RequestedDuration", "How long the certificate should be valid."),
            column("Condition", "State of the request."),
        ],
        _signing_request,
    ),
    ("certificates.k8s.io", "ClusterTrustBundle"): Printer(
        [NAME, column("SignerName", "Signer whose certificates these authorities verify.")], _trust_bundle
    ),
    ("certificates.k8s.io", "PodCertificateRequest"): Printer(
        [
            NAME,
            column("PodName", "Pod that the certificate is for."),
            column("ServiceAccountName", "Service account of the pod."),
            column("NodeName", "Node that runs the pod and asks for the certificate."),
            column("SignerName", "Signer that decides."),
            column("State", "Pending, Issued, Denied or Failed."),
            AGE,
        ],
        _pod_certificate_request,
    ),
    (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingAdmissionPolicy"): Printer(
        [NAME, column("Validations", "Number of rules.", "integer"), _PARAM_KIND, AGE], _policy
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Printer(
        [NAME, column("Mutations", "Number of changes.", "integer"), _PARAM_KIND, AGE], _policy
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _POLICY_BINDING,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Printer(
        [
            NAME,
            column("Scope", "Whether objects live in a namespace."),
            column("Versions", "Versions that are served."),
            CREATED_AT,
            column("Group", "Group of the resource.", wide=True),
            column("Kind", "Kind of the objects.", wide=True),
            column("ShortNames", "Short names of the resource.", wide=True),
            column("Established", "Whether the resource is served.", "boolean", wide=True),
        ],
        _definition,
    ),
    ("apiregistration.k8s.io", "APIService"): Printer(
        [
            NAME,
            column("Service", "Service that serves the API."),
            column("Available", "Whether the server responds."),
            AGE,
        ],
        _api_service,
    ),
}
