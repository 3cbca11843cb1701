"""Who may write ClusterTrustBundles, and issue certificates for pods."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.app.pki import Pki
from shoal.testing.servers import local_server

BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_a_bundle_for_a_signer_needs_the_right_to_attest(tmp_path: Path) -> None:
    text = Pki(tmp_path, now=datetime.now(UTC)).ensure_ca().cert.read_text()
    jane = {"Impersonate-User": "jane"}
    spec = {"signerName": "shop.example/web", "trustBundle": text}
    bundle = {"metadata": {"name": "shop.example:web:roots"}, "spec": spec}

    def rule(verb: str, resource: str) -> dict[str, list[str]]:
        return {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb]}

    async with local_server() as server:
        role = {"metadata": {"name": "bundles"}, "rules": [rule("*", "clustertrustbundles")]}
        await server.post(f"{RBAC}/clusterroles", role)
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]
        reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "bundles"}
        await server.post(
            f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": "bundles"}, "roleRef": reference, "subjects": subjects},
        )
        refused = await server.call("POST", BUNDLES, bundle, jane)
        assert refused.status == 403
        assert 'user not permitted to attest for signerName "shop.example/web"' in refused.json["message"]
        own = {"metadata": {"name": "roots"}, "spec": {"trustBundle": text}}
        assert (await server.call("POST", BUNDLES, own, jane)).status == 201
        signers = {**rule("attest", "signers"), "resourceNames": ["shop.example/*"]}
        await server.patch(f"{RBAC}/clusterroles/bundles", {"rules": [rule("*", "clustertrustbundles"), signers]})
        assert (await server.call("POST", BUNDLES, bundle, jane)).status == 201


KEY = ec.generate_private_key(ec.SECP256R1())


def a_request(node: str = "n1", **uids: str) -> dict[str, Any]:
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(KEY, hashes.SHA256())
    spec = {
        "signerName": "shop.example/web", "podName": "web", "serviceAccountName": "default", "nodeName": node,
        "stubPKCS10Request": base64.b64encode(csr.public_bytes(serialization.Encoding.DER)).decode(),
        "podUID": "u", "nodeUID": "u", "serviceAccountUID": "u", **uids,
    }  # fmt: skip
    return {"metadata": {"name": "web"}, "spec": spec}


def a_certificate(begin: datetime) -> dict[str, Any]:
    """The status of a request that is issued with it."""
    begin = begin.replace(microsecond=0)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "web")])
    made = x509.CertificateBuilder(name, name, KEY.public_key(), 1, begin, begin + timedelta(hours=2))
    times = {"notBefore": begin, "notAfter": begin + timedelta(hours=2), "beginRefreshAt": begin + timedelta(hours=1)}
    text = made.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    return {"certificateChain": text, **{each: at.strftime("%Y-%m-%dT%H:%M:%SZ") for each, at in times.items()}}


async def test_the_status_of_a_pods_request_needs_the_right_to_sign_and_begins_now() -> None:
    jane, group = {"Impersonate-User": "jane"}, "certificates.k8s.io"
    requests = f"/apis/{group}/v1/namespaces/default/podcertificaterequests"
    async with local_server() as server:
        await server.post(requests, a_request())
        rules = [{"apiGroups": [group], "resources": ["podcertificaterequests/status"], "verbs": ["patch"]}]
        await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": "signer"}, "rules": rules})
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]
        reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "signer"}
        binding = {"metadata": {"name": "signer"}, "roleRef": reference, "subjects": subjects}
        await server.post(f"{RBAC}/clusterrolebindings", binding)
        condition = {"type": "Denied", "status": "True", "reason": "No", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        denied = {"status": {"conditions": [condition]}}
        patch = {**jane, "Content-Type": "application/merge-patch+json"}
        refused = await server.call("PATCH", f"{requests}/web/status", denied, patch)
        assert refused.status == 403
        assert 'user not permitted to sign requests with signerName "shop.example/web"' in refused.json["message"]
        rules.append({"apiGroups": [group], "resources": ["signers"], "verbs": ["sign"]})
        await server.patch(f"{RBAC}/clusterroles/signer", {"rules": rules})
        begin = datetime.now(UTC) - timedelta(minutes=10)
        old = {"status": {**a_certificate(begin), "conditions": [{**condition, "type": "Issued"}]}}
        late = await server.call("PATCH", f"{requests}/web/status", old, patch)
        assert late.status == 422 and "within 5 minutes of kube-apiserver's current time" in late.json["message"]
        accepted = await server.call("PATCH", f"{requests}/web/status", denied, patch)
        assert (accepted.status, accepted.json["status"]["conditions"]) == (200, [condition])
        again = await server.call("PATCH", f"{requests}/web/status", {"status": None}, patch)
        assert again.status == 422 and "immutable after" in again.json["message"]


async def test_a_node_asks_only_for_its_own_pods_with_the_identity_that_they_have() -> None:
    async with local_server() as server:
        uids = {}
        for name in ("n1", "n2"):
            made = await server.post("/api/v1/nodes", {"metadata": {"name": name}})
            uids[name] = made["metadata"]["uid"]
        account = await server.get("/api/v1/namespaces/default/serviceaccounts/default")
        spec = {"nodeName": "n1", "containers": [{"name": "a", "image": "a"}]}
        pod = await server.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "web"}, "spec": spec})
        requests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
        identity = {"podUID": pod["metadata"]["uid"], "serviceAccountUID": account["metadata"]["uid"]}

        async def asked(node: str, body: Any, method: str = "POST", more: str = "") -> int:
            user = {"Impersonate-User": f"system:node:{node}", "Impersonate-Group": "system:nodes"}
            return (await server.call(method, f"{requests}{more}", body, user)).status

        good = a_request("n1", nodeUID=uids["n1"], **identity)
        for wrong in (
            a_request("n2", nodeUID=uids["n2"], **identity), a_request("n1", nodeUID=uids["n2"], **identity),
            a_request("n1", nodeUID=uids["n1"], **{**identity, "podUID": "other"}),
            a_request("n1", nodeUID=uids["n1"], **{**identity, "serviceAccountUID": "other"}),
            a_request("n1", nodeUID=uids["n1"], **identity, serviceAccountName="builder"),
        ):  # fmt: skip
            assert await asked("n1", wrong) == 403
        assert await asked("n2", {**good, "spec": {**good["spec"], "nodeName": "n2", "nodeUID": uids["n2"]}}) == 403
        assert await asked("n1", good) == 201
        assert await asked("n1", None, "GET", "/web") == 200
        assert await asked("n2", None, "GET", "/web") == 403
        assert await asked("n1", None, "GET", "?fieldSelector=spec.nodeName%3Dn1") == 200
        assert await asked("n1", None, "GET") == 403
