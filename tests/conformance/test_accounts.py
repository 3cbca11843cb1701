"""Service accounts and their tokens, access reviews, certificate signing requests."""

from __future__ import annotations

import base64
import datetime

from conformance_api import Api, conformance, refused, unique
from conformance_steps import check_discovery, check_operations
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking

ROOT_CA = "kube-root-ca.crt"


@conformance("[sig-auth] ServiceAccounts should run through the lifecycle of a ServiceAccount [Conformance]")
def test_service_account_lifecycle(api: Api, namespace: str) -> None:
    accounts, run = api.of("v1", "serviceaccounts", namespace), unique("run")
    created = accounts.create({"metadata": {"name": "testserviceaccount", "labels": {"static": run}}})
    assert accounts.get("testserviceaccount")["metadata"]["uid"] == created["metadata"]["uid"]
    with accounts.watch(f"static={run}") as watch:
        watch.expect("ADDED", "testserviceaccount")
        accounts.patch("testserviceaccount", {"automountServiceAccountToken": False}, "strategic")
        assert watch.expect("MODIFIED")["automountServiceAccountToken"] is False
        listed = api.of("v1", "serviceaccounts").items(f"static={run}")
        assert [item["automountServiceAccountToken"] for item in listed] == [False]
        accounts.delete_collection()
        watch.expect("DELETED", "testserviceaccount")


@conformance("[sig-auth] ServiceAccounts should update a ServiceAccount [Conformance]")
def test_service_account_update(api: Api, namespace: str) -> None:
    accounts = api.of("v1", "serviceaccounts", namespace)
    assert "automountServiceAccountToken" not in accounts.create({"metadata": {"name": "e2e-sa"}})
    updated = accounts.update("e2e-sa", lambda obj: obj.update(automountServiceAccountToken=True))
    assert updated["automountServiceAccountToken"] is True
    assert accounts.get("e2e-sa")["automountServiceAccountToken"] is True


@conformance("[sig-auth] ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace [Conformance]")
def test_root_certificate_is_in_every_namespace(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    eventually_blocking(lambda: not maps.is_gone(ROOT_CA))
    maps.delete(ROOT_CA, {"gracePeriodSeconds": 0})
    eventually_blocking(lambda: not maps.is_gone(ROOT_CA))
    maps.replace({"metadata": {"name": ROOT_CA}, "data": {"ca.crt": ""}})
    eventually_blocking(lambda: maps.get(ROOT_CA)["data"].get("ca.crt"))
    assert "BEGIN CERTIFICATE" in maps.get(ROOT_CA)["data"]["ca.crt"]


@conformance(
    "[sig-auth] ServiceAccounts should create a serviceAccountToken and ensure a successful TokenReview [Conformance]"
)
def test_a_token_passes_its_review(api: Api, namespace: str) -> None:
    accounts = api.of("v1", "serviceaccounts", namespace)
    accounts.create({"metadata": {"name": "e2e-sa"}})
    token = api.create(f"{accounts.path}/e2e-sa/token", {"spec": {}})["status"]["token"]
    assert token

    def review(given: str, **spec: object) -> Obj:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        found: Obj = api.create(path, {"spec": {"token": given, **spec}})["status"]
        return found

    status = review(token)
    assert status["authenticated"] is True
    assert not status.get("error")
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:e2e-sa"
    assert f"system:serviceaccounts:{namespace}" in status["user"]["groups"]

    head, body, signature = token.split(".")
    other = "A" if signature[0] != "A" else "B"
    assert not review(f"{head}.{body}.{other}{signature[1:]}").get("authenticated")
    assert not review(token, audiences=["another"]).get("authenticated")
    accounts.delete("e2e-sa")
    assert not review(token).get("authenticated")


@conformance("[sig-auth] SubjectReview should support SubjectReview API operations [Conformance]")
def test_access_reviews_say_what_requests_meet(api: Api, namespace: str) -> None:
    uid = api.of("v1", "serviceaccounts", namespace).create({"metadata": {"name": "e2e"}})["metadata"]["uid"]
    user = f"system:serviceaccount:{namespace}:e2e"
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    asked = {"verb": "list", "resource": "configmaps", "namespace": namespace, "version": "v1"}
    review = {"spec": {"resourceAttributes": asked, "user": user, "groups": groups, "uid": uid}}
    root = "/apis/authorization.k8s.io/v1"
    allowed = api.create(f"{root}/subjectaccessreviews", review)["status"]["allowed"]

    headers = [("Impersonate-User", user), ("Impersonate-Uid", uid), *(("Impersonate-Group", g) for g in groups)]
    response = api.http.get(f"/api/v1/namespaces/{namespace}/configmaps", headers=headers)
    assert (response.status_code == 200) == allowed, response.text
    if not allowed:
        assert response.json()["reason"] == "Forbidden"
        assert f'User "{user}" cannot list resource "configmaps"' in response.json()["message"]

    token = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/e2e/token", {"spec": {}})["status"]["token"]
    account = api.as_user(token)
    error = refused("Forbidden", account.send, "GET", "/api/v1/nodes", headers={"Impersonate-User": "admin"})
    assert f'User "{user}" cannot impersonate resource "users"' in error.message
    account.close()

    local = {**review, "metadata": {"namespace": namespace}}
    path = f"{root}/namespaces/{namespace}/localsubjectaccessreviews"
    assert api.create(path, local)["status"]["allowed"] == allowed
    elsewhere = {**local, "spec": {**review["spec"], "resourceAttributes": {**asked, "namespace": "other"}}}
    refused("Invalid", api.create, path, elsewhere)


def signing_request() -> tuple[str, str]:
    """A request and a certificate for it, in base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return base64.b64encode(request.public_bytes(pem)).decode(), base64.b64encode(
        certificate.public_bytes(pem)
    ).decode()


@conformance("[sig-auth] Certificates API [Privileged:ClusterAdmin] should support CSR API operations [Conformance]")
def test_signing_request_operations(api: Api) -> None:
    root = "certificatesigningrequests"
    check_discovery(api, "certificates.k8s.io/v1", root, f"{root}/approval", f"{root}/status")
    requests = api.of("certificates.k8s.io/v1", root)
    request, certificate = signing_request()
    signer = f"example.com/{unique('e2e')}"
    chosen = f"spec.signerName={signer}"
    spec = {
        "request": request,
        "signerName": signer,
        "expirationSeconds": 3600,
        "usages": ["digital signature", "key encipherment", "server auth"],
    }
    template = {"metadata": {"generateName": "e2e-example-csr-"}, "spec": spec}
    created = [requests.create(template) for _ in range(3)]
    name = created[0]["metadata"]["name"]
    assert requests.get(name)["spec"]["expirationSeconds"] == 3600
    assert requests.get(name)["spec"]["username"]
    listed = requests.list(fields=chosen)
    assert len(listed["items"]) == 3

    with requests.watch(fields=f"metadata.name={name}", after=listed) as watch:
        requests.patch(name, {"metadata": {"annotations": {"patched": "true"}}})
        updated = requests.update(name, lambda obj: obj["metadata"]["annotations"].update(updated="true"))
        assert updated["metadata"]["annotations"] == {"patched": "true", "updated": "true"}
        watch.until("MODIFIED", lambda obj: obj["metadata"]["annotations"].get("patched") == "true")

    assert requests.get(name, "approval")["metadata"]["uid"] == created[0]["metadata"]["uid"]
    note = {"metadata": {"annotations": {"patchedapproval": "true"}}}
    first = {"type": "ApprovalPatch", "status": "True", "reason": "e2e"}
    patched = requests.patch(name, {**note, "status": {"conditions": [first]}}, sub="approval")
    assert [c["type"] for c in patched["status"]["conditions"]] == ["ApprovalPatch"]
    assert patched["metadata"]["annotations"]["patchedapproval"] == "true"
    approve(patched)
    approved = requests.replace(patched, "approval")
    assert [c["type"] for c in approved["status"]["conditions"]] == ["ApprovalPatch", "Approved"]

    signed = requests.patch(name, {"status": {"certificate": certificate}}, sub="status")
    assert signed["status"]["certificate"] == certificate
    signed["status"]["conditions"].append({"type": "StatusUpdate", "status": "True", "reason": "E2E"})
    assert requests.replace(signed, "status")["status"]["conditions"][-1]["type"] == "StatusUpdate"

    requests.delete(name)
    assert requests.is_gone(name)
    assert len(requests.items(fields=chosen)) == 2
    requests.delete_collection(fields=chosen)
    assert requests.items(fields=chosen) == []


def approve(request: Obj) -> None:
    request["status"]["conditions"].append({"type": "Approved", "status": "True", "reason": "E2E", "message": "yes"})


@conformance(
    "[sig-auth] PodCertificateRequest API [Privileged:ClusterAdmin] should support PodCertificateRequest API operations"
    " [Conformance]"
)
def test_pod_certificate_request_operations(api: Api, namespace: str) -> None:
    root = "podcertificaterequests"
    check_discovery(api, "certificates.k8s.io/v1", root, f"{root}/status")
    requests = api.of("certificates.k8s.io/v1", root, namespace)
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    der = csr.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    def make(name: str) -> Obj:
        spec = {
            "signerName": f"example.com/{name}", "podName": "pod-1", "podUID": "pod-uid-1", "nodeName": "node-1",
            "nodeUID": "node-uid-1", "serviceAccountName": "sa-1", "serviceAccountUID": "sa-uid-1",
            "stubPKCS10Request": base64.b64encode(der).decode(),
        }  # fmt: skip
        return {"metadata": {"name": name}, "spec": spec}

    stored = check_operations(
        requests, make, change=lambda obj: None, everywhere=api.of("certificates.k8s.io/v1", root)
    )  # fmt: skip
    assert stored["spec"]["maxExpirationSeconds"] == 86400
    name = unique("denied")
    requests.create(make(name))
    condition = {"type": "Denied", "status": "True", "reason": "Test", "message": "no",
                 "lastTransitionTime": "2026-05-01T10:00:00Z"}  # fmt: skip
    denied = requests.patch(name, {"status": {"conditions": [condition]}}, sub="status")
    assert denied["status"]["conditions"] == [condition] == requests.get(name, "status")["status"]["conditions"]
    requests.delete(name)
