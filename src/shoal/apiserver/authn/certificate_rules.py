"""Permissions to approve, sign and request certificates: admission of certificate signing requests.

Guards of ``certificatesigningrequests``, ``clustertrustbundles`` and ``podcertificaterequests``. ``approve``, ``sign``
and ``attest`` are verbs on the virtual resource ``signers``, by the signer's full name or by its domain with ``/*``.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.apiserver.authn.signers import API_CLIENT, CertificateRequest, reserved_name
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import Call
from shoal.apiserver.user import User
from shoal.errors import Forbidden, Invalid, invalid
from shoal.kube.kinds.access.pod_certificate import ended
from shoal.kube.kinds.common import deep_same
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

_GROUP, _PLURAL, _BUNDLES = "certificates.k8s.io", "certificatesigningrequests", "clustertrustbundles"
TRUST_BUNDLES = f"{_BUNDLES}.{_GROUP}"
_OF_PODS = "podcertificaterequests"
POD_CERTIFICATES = f"{_OF_PODS}.{_GROUP}"
_NEAR_S = 300.0


def certificate_guard(authorizer: Authorizer) -> Callable[[Call, Obj, Obj | None], None]:
    """The guard for all writes of certificate signing requests."""

    def guard(call: Call, new: Obj, old: Obj | None) -> None:
        subresource = call.target.subresource
        if old is None:
            check_subject(call.user, authorizer, new, old)
        elif subresource == "approval":
            check_approval(call.user, authorizer, new, old)
        elif subresource == "status":
            check_signing(call.user, authorizer, new, old)

    return guard


def trust_bundle_guard(authorizer: Authorizer) -> Callable[[Call, Obj, Obj | None], None]:
    """The guard for writes of ClusterTrustBundles: a user needs ``attest`` on the signer that a bundle is for."""

    def guard(call: Call, new: Obj, old: Obj | None) -> None:
        signer = _signer(new)
        if signer and (old is None or new.get("spec") != old.get("spec")):
            if not _may(call.user, authorizer, "attest", signer):
                raise _refused(new, f'user not permitted to attest for signerName "{signer}"', _BUNDLES)

    return guard


def pod_certificate_guard(
    authorizer: Authorizer, wall_s: Callable[[], float]
) -> Callable[[Call, Obj, Obj | None], None]:
    """The guard for the status of PodCertificateRequests: a user who changes it needs ``sign`` on the signer, and a
    certificate begins about now."""

    def guard(call: Call, new: Obj, old: Obj | None) -> None:
        if old is None or call.target.subresource != "status" or deep_same(new.get("status"), old.get("status")):
            return
        signer = _signer(old)
        if not _may(call.user, authorizer, "sign", signer):
            raise _refused(old, f'user not permitted to sign requests with signerName "{signer}"', _OF_PODS)
        begin = (new.get("status") or {}).get("notBefore")
        if begin and not ended(old) and abs(parse_epoch(begin) - wall_s()) > _NEAR_S:
            text = "must be set to within 5 minutes of kube-apiserver's current time"
            name = old["metadata"].get("name") or ""
            raise Invalid.of("PodCertificateRequest", _GROUP, name, [invalid("status.notBefore", begin, text)])

    return guard


def check_approval(user: User, authorizer: Authorizer, new: Obj, old: Obj) -> None:
    """A user who writes ``/approval`` needs ``approve`` on the signer of the stored request."""
    signer = _signer(old)
    if not _may(user, authorizer, "approve", signer):
        raise _refused(old, f'user not permitted to approve requests with signerName "{signer}"')


def check_signing(user: User, authorizer: Authorizer, new: Obj, old: Obj) -> None:
    """A user who changes the certificate or conditions through ``/status`` needs ``sign`` on the signer."""
    after, before = new.get("status") or {}, old.get("status") or {}
    same = (after.get("certificate") or "") == (before.get("certificate") or "")
    if same and (after.get("conditions") or []) == (before.get("conditions") or []):
        return
    signer = _signer(old)
    if not _may(user, authorizer, "sign", signer):
        raise _refused(old, f'user not permitted to sign requests with signerName "{signer}"')


def check_subject(user: User, authorizer: Authorizer, new: Obj, old: Obj | None) -> None:
    """Reject requests to the client signer for the administrators' group and for the API server's own names, whatever
    the user's permissions."""
    if _signer(new) != API_CLIENT:
        return
    try:
        request = CertificateRequest(new)
    except (LookupError, ValueError, TypeError):
        raise _refused(new, "failed to parse CSR") from None
    if reserved := reserved_name(request.common_names, request.organizations):
        raise _refused(new, f"use of {API_CLIENT} signer with {reserved} is not allowed")


def _may(user: User, authorizer: Authorizer, verb: str, signer: str) -> bool:
    domain = signer.partition("/")[0]
    return any(
        authorizer.allows(user, Attributes(verb, _GROUP, "signers", name=name)) for name in (signer, f"{domain}/*")
    )


def _signer(csr: Obj) -> str:
    return (csr.get("spec") or {}).get("signerName") or ""


def _refused(obj: Obj, why: str, plural: str = _PLURAL) -> Forbidden:
    name = obj["metadata"].get("name") or ""
    return Forbidden(
        f'{plural}.{_GROUP} "{name}" is forbidden: {why}',
        details={"name": name, "group": _GROUP, "kind": plural},
    )
