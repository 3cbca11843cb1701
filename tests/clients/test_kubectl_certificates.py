"""kubectl's ways to authenticate: client certificates, certificate requests, tokens, impersonation."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.clients.conftest import Kubectl

from shoal.app.main import main
from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking

CLIENT = "kubernetes.io/kube-apiserver-client"


def a_request(user: str, groups: Sequence[str] = ()) -> tuple[str, str]:
    """A certificate request in base64, and its key as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    name = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return base64.b64encode(request.public_bytes(Encoding.PEM)).decode(), private


def a_csr(name: str, request: str, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"request": request, "signerName": CLIENT, "usages": ["client auth"], **spec},
        }
    )


def with_user(kubectl: Kubectl, user: dict[str, str]) -> Kubectl:
    """kubectl as another user, with the credentials of a kubeconfig's user."""
    document = json.loads(Path(kubectl.kubeconfig).read_text())
    document["users"][0]["user"] = user
    path = kubectl.home / "other.kubeconfig"
    path.write_text(json.dumps(document))
    return Kubectl(kubectl.path, str(path), kubectl.namespace, kubectl.home)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def whoami(kubectl: Kubectl) -> Any:
    return json.loads(kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]


def test_an_approved_request_becomes_a_certificate_that_kubectl_can_use(kubectl: Kubectl, namespace: str) -> None:
    name, user = f"r-{namespace}", f"alice-{namespace}"
    request, key = a_request(user, ("dev",))
    kubectl("create", "-f", "-", stdin=a_csr(name, request, expirationSeconds=3600))
    assert kubectl("get", "csr", name).splitlines()[1].split()[-1] == "Pending"
    assert f"{name} approved" in kubectl("certificate", "approve", name)
    certificate = eventually_blocking(lambda: kubectl("get", "csr", name, "-o", "jsonpath={.status.certificate}"))
    assert kubectl("get", "csr", name).splitlines()[1].split()[-1] == "Approved,Issued"

    alice = with_user(kubectl, {"client-certificate-data": certificate, "client-key-data": encoded(key)})
    found = whoami(alice)
    assert (found["username"], found["groups"]) == (user, ["dev", "system:authenticated"])
    refused = alice.fails("get", "configmaps")
    assert f'User "{user}" cannot list resource "configmaps" in API group "" in the namespace "{namespace}"' in refused
    kubectl("create", "rolebinding", "readers", "--clusterrole=view", "--group=dev")
    assert "kube-root-ca.crt" in alice("get", "configmaps")


def test_a_denied_request_gets_no_certificate(kubectl: Kubectl, namespace: str) -> None:
    name = f"d-{namespace}"
    kubectl("create", "-f", "-", stdin=a_csr(name, a_request("mallory")[0]))
    kubectl("certificate", "deny", name)
    assert kubectl("get", "csr", name).splitlines()[1].split()[-1] == "Denied"
    kubectl.fails("certificate", "approve", name)


def test_a_certificate_request_for_the_administrators_group_is_refused(kubectl: Kubectl, namespace: str) -> None:
    request, _ = a_request("mallory", ("system:masters",))
    refused = kubectl.fails("create", "-f", "-", stdin=a_csr(f"m-{namespace}", request))
    assert f"use of {CLIENT} signer with system:masters group is not allowed" in refused


def test_a_forged_certificate_is_refused(kubectl: Kubectl) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-admin")])
    authority = x509.load_pem_x509_certificate(
        base64.b64decode(
            json.loads(Path(kubectl.kubeconfig).read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
        )
    )
    forged = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificate = forged.public_bytes(Encoding.PEM).decode()
    other = with_user(kubectl, {"client-certificate-data": encoded(certificate), "client-key-data": encoded(private)})
    assert other.run("auth", "whoami").returncode != 0


def test_tokens_of_service_accounts_are_made_for_an_audience_a_time_and_a_pod(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    overrides = json.dumps({"spec": {"serviceAccountName": "robot"}})
    kubectl("run", "p", "--image=i", f"--overrides={overrides}")
    pod = json.loads(kubectl("get", "pod", "p", "-o", "json"))["metadata"]["uid"]
    by_pod = ("--bound-object-kind", "Pod", "--bound-object-name", "p", "--bound-object-uid", pod)
    token = kubectl("create", "token", "robot", "--duration", "20m", *by_pod).strip()
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 1200
    assert claims["kubernetes.io"]["pod"] == {"name": "p", "uid": pod}
    robot = with_user(kubectl, {"token": token})
    found = whoami(robot)
    assert found["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    assert found["extra"]["authentication.kubernetes.io/pod-uid"] == [pod]
    kubectl("delete", "pod", "p", "--now")
    assert "Unauthorized" in robot.fails("auth", "whoami") or "logged in" in robot.fails("auth", "whoami")

    token = kubectl("create", "token", "robot", "--audience", "vault", "--audience", "spire").strip()
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["aud"] == ["vault", "spire"]
    assert with_user(kubectl, {"token": token}).run("auth", "whoami").returncode != 0
    assert "less than 10 minutes" in kubectl.fails("create", "token", "robot", "--duration", "5m")


def test_kubectl_impersonates_users_and_groups(kubectl: Kubectl) -> None:
    found = json.loads(
        kubectl("auth", "whoami", "-o", "json", "--as=bob", "--as-group=dev", "--as-group=ops", "--as-uid=u1")
    )["status"]["userInfo"]
    assert (found["username"], found["uid"]) == ("bob", "u1")
    assert found["groups"] == ["dev", "ops", "system:authenticated"]
    assert 'User "bob" cannot list resource "secrets"' in kubectl.fails("get", "secrets", "--as=bob")
    assert kubectl.run("auth", "can-i", "list", "secrets", "--as=bob").stdout.strip() == "no"
    assert "kubernetes-admin" in kubectl("auth", "whoami")


@pytest.mark.parametrize("how", ["token", "kubeconfig"])
def test_a_static_token_works_and_ends_while_the_server_runs(
    kubectl: Kubectl, cluster: ServerProcess, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    name, where = f"t-{kubectl.namespace}", ("--dir", str(cluster.directory))
    flags = ("--kubeconfig",) if how == "kubeconfig" else ()
    assert main(["token", "create", "--user", "carol", "--group", "dev", "--name", name, *flags, *where]) == 0
    printed = capsys.readouterr().out
    if how == "kubeconfig":
        path = kubectl.home / "carol.kubeconfig"
        path.write_text(printed)
        carol = Kubectl(kubectl.path, str(path), kubectl.namespace, kubectl.home)
    else:
        carol = with_user(kubectl, {"token": printed.strip()})
    answered = eventually_blocking(
        lambda: carol.run("auth", "whoami", "-o", "json"), until=lambda done: done.returncode == 0
    )
    found = json.loads(answered.stdout)["status"]["userInfo"]
    assert (found["username"], found["groups"]) == ("carol", ["dev", "system:authenticated"])
    assert main(["token", "revoke", name, *where]) == 0
    eventually_blocking(lambda: carol.run("auth", "whoami"), until=lambda done: done.returncode != 0)
