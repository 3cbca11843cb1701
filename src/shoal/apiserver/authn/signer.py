"""Approves the certificate requests of nodes that may have one, and signs approved requests, with the cluster's own
authority.

After approval this loop signs requests for the signers of Kubernetes. It ignores requests for other
signers.
"""

from __future__ import annotations

import base64

from shoal.apiserver import objects
from shoal.apiserver.authn.loop import StoreLoop
from shoal.apiserver.authn.signers import (
    FAULTS,
    KUBELET_CLIENT,
    Authority,
    CertificateMaker,
    CertificateRequest,
    kubelet_client_fault,
)
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import Core
from shoal.apiserver.user import User
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Write
from shoal.kube.objects import Obj
from shoal.store import Entry, Key

REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_GROUP, _PLURAL = "certificates.k8s.io", "certificatesigningrequests"


class CertificateSigner:
    """A loop over the certificate requests."""

    def __init__(self, core: Core, writer: Writer, authorizer: Authorizer, authority: Authority) -> None:
        self.core, self.writer, self.authorizer = core, writer, authorizer
        self._authority = authority
        self._maker: CertificateMaker | None = None
        self._loop = StoreLoop(core, REQUESTS, self._look, _waits)

    def replace_authority(self, authority: Authority) -> None:
        """Sign with this one from now on."""
        self._authority, self._maker = authority, None

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def _look(self, key: Key) -> None:
        entry = self.core.store.get(key)
        if entry is None:
            return
        csr = objects.decode(entry)
        if csr["spec"].get("signerName") not in FAULTS or _is_finished(csr):
            return
        request = CertificateRequest(csr)
        if not _has(csr, "Approved"):
            message = self._approval(csr, request)
            if message:
                _add_condition(csr, "Approved", "AutoApproved", message)
                await self._write(csr, entry, "approval")
            return
        fault = FAULTS[request.signer](request)
        if fault:
            _add_condition(csr, "Failed", "SignerValidationFailure", fault)
        else:
            csr["status"]["certificate"] = base64.b64encode(self._make(request)).decode()
        await self._write(csr, entry, "status")

    def _approval(self, csr: Obj, request: CertificateRequest) -> str:
        """The message for automatic approval; empty when a person must approve."""
        if request.signer != KUBELET_CLIENT or kubelet_client_fault(request):
            return ""
        spec = csr["spec"]
        extra = tuple((name, tuple(values)) for name, values in (spec.get("extra") or {}).items())
        user = User(spec.get("username") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)
        if user.name == request.common_name and self._may(user, "selfnodeclient"):
            return "Auto approving self kubelet client certificate after SubjectAccessReview."
        if self._may(user, "nodeclient"):
            return "Auto approving kubelet client certificate after SubjectAccessReview."
        return ""

    def _may(self, user: User, subresource: str) -> bool:
        return self.authorizer.allows(user, Attributes("create", _GROUP, _PLURAL, subresource))

    def _make(self, request: CertificateRequest) -> bytes:
        if self._maker is None:
            self._maker = CertificateMaker(self._authority)
        return self._maker.make(request, self.core.clock.now())

    async def _write(self, csr: Obj, entry: Entry, subresource: str) -> None:
        served = self.core.registry.stored(REQUESTS)
        assert served is not None
        author = Author("shoal-apiserver", subresource)
        await self.writer.store(Write.own(served, csr, entry, author))


def _waits(entry: Entry) -> bool:
    return True  # there are few, and most end soon


def _has(csr: Obj, kind: str) -> bool:
    conditions = (csr.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == kind for condition in conditions)


def _is_finished(csr: Obj) -> bool:
    return bool((csr.get("status") or {}).get("certificate")) or _has(csr, "Denied") or _has(csr, "Failed")


def _add_condition(csr: Obj, kind: str, reason: str, message: str) -> None:
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    csr.setdefault("status", {}).setdefault("conditions", []).append(condition)
