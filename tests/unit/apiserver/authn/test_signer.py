"""Certificate signing requests: who may ask for, approve and sign what, and what comes out."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from authn_requests import CLIENT, KUBELET, NODE, SERVING, a_csr, der_of, new_request
from authn_server import REQUESTS, AuthnServer, bounded_server
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from shoal.apiserver.authn.signer import CertificateSigner
from shoal.apiserver.authn.signers import FAULTS, Authority, CertificateRequest, life_of
from shoal.apiserver.user import User
from shoal.testing.waiting import eventually

CLIENT_USAGES = ("digital signature", "key encipherment", "client auth")
ALICE = User("alice", ("dev", "system:authenticated"))


async def approve(server: AuthnServer, name: str, kind: str = "Approved", **options: Any) -> Any:
    csr = (await server.ask("GET", f"{REQUESTS}/{name}")).ok()
    condition = {"type": kind, "status": "True", "reason": "Test", "message": "said so"}
    csr["status"] = {**(csr.get("status") or {}), "conditions": [condition]}
    return await server.ask("PUT", f"{REQUESTS}/{name}/approval", csr, **options)


async def settled(server: AuthnServer, name: str) -> Any:
    """The request once it has a certificate or has failed."""

    async def finished() -> Any:
        csr = (await server.ask("GET", f"{REQUESTS}/{name}")).ok()
        return csr if csr["status"].get("certificate") or condition_of(csr, "Failed") else None

    return await eventually(finished)


def condition_of(csr: Any, kind: str) -> Any:
    return next((c for c in csr["status"].get("conditions") or () if c["type"] == kind), None)


async def signed(server: AuthnServer, csr: Any, **options: Any) -> x509.Certificate:
    await server.create(REQUESTS, csr, **options)
    (await approve(server, csr["metadata"]["name"])).ok()
    found = await settled(server, csr["metadata"]["name"])
    certificate = x509.load_pem_x509_certificate(base64.b64decode(found["status"]["certificate"]))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(server.pki.ensure_ca().cert.read_bytes()))
    return certificate


def purposes(certificate: x509.Certificate) -> list[Any]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


async def test_an_approved_request_gets_a_certificate_that_authenticates() -> None:
    async with bounded_server() as server:
        request, _ = new_request("alice", ("dev",), ("dns=alice.example.com",))
        certificate = await signed(server, a_csr("alice", CLIENT, CLIENT_USAGES, request))
        assert certificate.subject == x509.load_pem_x509_csr(request).subject
        assert purposes(certificate) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        assert (usage.digital_signature, usage.key_encipherment, usage.key_cert_sign) == (True, True, False)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["alice.example.com"]
        pem = base64.b64decode((await settled(server, "alice"))["status"]["certificate"])
        user = await server.who(token=None, certificate=der_of(pem))
        assert (user["username"], user["groups"]) == ("alice", ["dev", "system:authenticated"])


async def test_requests_that_are_not_approved_or_for_other_signers_are_left_alone() -> None:
    async with bounded_server() as server:
        for name, signer in {"waiting": CLIENT, "denied": CLIENT, "foreign": "example.com/own"}.items():
            await server.create(REQUESTS, a_csr(name, signer, CLIENT_USAGES, new_request(name)[0]))
        (await approve(server, "denied", "Denied")).ok()
        (await approve(server, "foreign")).ok()
        await signed(server, a_csr("last", CLIENT, CLIENT_USAGES, new_request("last")[0]))
        for name in ("waiting", "denied", "foreign"):
            csr = (await server.ask("GET", f"{REQUESTS}/{name}")).ok()
            assert "certificate" not in csr["status"]
            assert condition_of(csr, "Failed") is None


@pytest.mark.parametrize(
    ("seconds", "life"),
    [
        (None, timedelta(days=365)),
        (600, timedelta(minutes=10)),
        (3600, timedelta(hours=1)),
        (10**8, timedelta(days=365)),
        (1, timedelta(minutes=10)),
    ],
)
def test_a_certificate_lives_as_long_as_asked_within_bounds(seconds: int | None, life: timedelta) -> None:
    assert life_of(seconds) == life


async def test_the_certificate_s_times_are_those_of_the_signing() -> None:
    async with bounded_server() as server:
        before = datetime.now(UTC)
        certificate = await signed(server, a_csr("a", CLIENT, CLIENT_USAGES, new_request("a")[0], seconds=3600))
        assert timedelta() <= certificate.not_valid_after_utc - before - timedelta(hours=1) + timedelta(seconds=1)
        assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(hours=1, minutes=5)


async def test_nodes_get_client_and_serving_certificates() -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        await server.allow("alice", APPROVAL)
        csr = a_csr("client", KUBELET, CLIENT_USAGES, new_request(*NODE)[0])
        client = await signed(server, csr, token="of-alice")
        assert purposes(client) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        usages = ("digital signature", "server auth")
        request, _ = new_request(*NODE, names=("dns=n1", "ip=10.0.0.1"))
        serving = await signed(server, a_csr("serving", SERVING, usages, request))
        assert purposes(serving) == [ExtendedKeyUsageOID.SERVER_AUTH]
        names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert len(list(names)) == 2


RULES = {
    "client with server auth": (
        CLIENT, ("client auth", "server auth"), new_request("a"),
        "invalid usage for client certificate: server auth",
    ),
    "client without client auth": (
        CLIENT, ("digital signature",), new_request("a"),
        "missing required usage for client certificate: client auth",
    ),
    "kubelet of another group": (
        KUBELET, CLIENT_USAGES, new_request(NODE[0], ("system:nodes", "system:masters")),
        "subject organization is not system:nodes",
    ),
    "kubelet of another name": (
        KUBELET, CLIENT_USAGES, new_request("alice", NODE[1]),
        "subject common name does not begin with system:node:",
    ),
    "kubelet with a DNS name": (
        KUBELET, CLIENT_USAGES, new_request(*NODE, names=("dns=a",)), "DNS subjectAltNames are not allowed",
    ),
    "kubelet with an address": (
        KUBELET, CLIENT_USAGES, new_request(*NODE, names=("ip=1.2.3.4",)), "IP subjectAltNames are not allowed",
    ),
    "kubelet with other usages": (
        KUBELET, ("client auth",), new_request(*NODE),
        "usages did not match [client auth digital signature key encipherment]",
    ),
    "serving without a name": (
        SERVING, ("digital signature", "server auth"), new_request(*NODE), "DNS or IP subjectAltName is required",
    ),
    "serving with an email": (
        SERVING, ("digital signature", "server auth"), new_request(*NODE, names=("dns=a", "email=a@example.com")),
        "Email subjectAltNames are not allowed",
    ),
    "serving with a URI": (
        SERVING, ("digital signature", "server auth"), new_request(*NODE, names=("dns=a", "uri=https://a")),
        "URI subjectAltNames are not allowed",
    ),
    "serving for clients": (
        SERVING, ("digital signature", "client auth"), new_request(*NODE, names=("dns=a",)),
        "usages did not match [digital signature key encipherment server auth]",
    ),
    "serving of another group": (
        SERVING, ("digital signature", "server auth"), new_request(NODE[0], names=("dns=a",)),
        "subject organization is not system:nodes",
    ),
}  # fmt: skip


async def test_a_request_that_breaks_its_signer_s_rules_fails_with_the_reason() -> None:
    async with bounded_server() as server:
        for number, (case, (signer, usages, request, message)) in enumerate(RULES.items()):
            name = f"r{number}"
            await server.create(REQUESTS, a_csr(name, signer, usages, request[0]))
            (await approve(server, name)).ok()
            found = await settled(server, name)
            assert "certificate" not in found["status"], case
            failed = condition_of(found, "Failed")
            assert (failed["reason"], failed["message"]) == ("SignerValidationFailure", message), case
            assert condition_of(found, "Approved") is not None


async def test_no_certificate_is_signed_for_the_administrators_group() -> None:
    async with bounded_server() as server:
        for groups in (("system:masters",), ("dev", "system:masters")):
            csr = a_csr("up", CLIENT, CLIENT_USAGES, new_request("mallory", groups)[0])
            assert (await server.ask("POST", REQUESTS, csr)).refused(403) == (
                'certificatesigningrequests.certificates.k8s.io "up" is forbidden: use of '
                "kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
            )


async def test_no_certificate_is_signed_for_the_names_that_kubelets_trust() -> None:
    user, group = "kube-apiserver-kubelet-client", "shoal:kubelet-api-admins"
    async with bounded_server() as server:
        for name, groups, named in (
            (user, (), f"user {user}"), (user, ("dev",), f"user {user}"), ("mallory", (group,), f"{group} group"),
        ):  # fmt: skip
            csr = a_csr("up", CLIENT, CLIENT_USAGES, new_request(name, groups)[0])
            why = (await server.ask("POST", REQUESTS, csr)).refused(403)
            assert why.endswith(f"use of kubernetes.io/kube-apiserver-client signer with {named} is not allowed")


def test_a_request_for_these_names_that_is_stored_already_is_not_signed() -> None:
    for name, groups in (("kube-apiserver-kubelet-client", ()), ("mallory", ("system:masters",))):
        csr = a_csr("up", CLIENT, CLIENT_USAGES, new_request(name, groups)[0])
        assert FAULTS[CLIENT](CertificateRequest(csr)).endswith("is not allowed")


APPROVAL = {
    "apiGroups": ["certificates.k8s.io"],
    "resources": [
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status",
    ],
    "verbs": ["get", "update", "patch", "create"],
}


@pytest.mark.parametrize("names", [[CLIENT], ["kubernetes.io/*"]])
async def test_approving_and_signing_need_the_right_to_the_signer(names: list[str]) -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        await server.allow("alice", APPROVAL)
        await server.create(REQUESTS, a_csr("r", CLIENT, CLIENT_USAGES, new_request("a")[0]))
        prefix = 'certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to'
        message = (await approve(server, "r", token="of-alice")).refused(403)
        assert message == f'{prefix} approve requests with signerName "{CLIENT}"'
        csr = (await server.ask("GET", f"{REQUESTS}/r")).ok()
        csr["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "X", "message": "x"}]}
        message = (await server.ask("PUT", f"{REQUESTS}/r/status", csr, token="of-alice")).refused(403)
        assert message == f'{prefix} sign requests with signerName "{CLIENT}"'
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/alice"
        rule = {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": names}
        change = {"rules": [APPROVAL, {**rule, "verbs": ["approve", "sign"]}]}
        merge = {"content-type": "application/merge-patch+json"}
        (await server.ask("PATCH", role, change, headers=merge)).ok()
        (await approve(server, "r", token="of-alice")).ok()
        await settled(server, "r")


async def test_a_request_names_its_creator_whatever_it_claims() -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        await server.allow("alice", APPROVAL)
        csr = a_csr("r", CLIENT, CLIENT_USAGES, new_request("a")[0])
        csr["spec"] |= {"username": "admin", "groups": ["system:masters"]}
        found = await server.create(REQUESTS, csr, token="of-alice")
        assert (found["spec"]["username"], found["spec"]["groups"]) == ("alice", list(ALICE.groups))


@pytest.mark.parametrize("right", ["nodeclient", "selfnodeclient", ""])
async def test_a_node_with_the_permission_gets_its_certificate_without_approval(right: str) -> None:
    user = NODE[0] if right == "selfnodeclient" else "joiner"

    async with bounded_server(tokens={"of-joiner": User(user, ("system:authenticated",))}) as server:
        more = [f"certificatesigningrequests/{right}"] if right else []
        await server.allow(user, {**APPROVAL, "resources": [*APPROVAL["resources"], *more]})
        await server.create(REQUESTS, a_csr("n", KUBELET, CLIENT_USAGES, new_request(*NODE)[0]), token="of-joiner")
        person = a_csr("p", CLIENT, CLIENT_USAGES, new_request("alice")[0])
        await server.create(REQUESTS, person, token="of-joiner")
        if right:
            found = await settled(server, "n")
            approved = condition_of(found, "Approved")
            assert approved["reason"] == "AutoApproved"
            assert approved["message"].startswith("Auto approving")
            assert found["status"]["certificate"]
        else:
            await signed(server, a_csr("last", CLIENT, CLIENT_USAGES, new_request("last")[0]))
            assert not (await server.ask("GET", f"{REQUESTS}/n")).ok()["status"].get("conditions")
        assert not (await server.ask("GET", f"{REQUESTS}/p")).ok()["status"].get("conditions")


async def test_the_permission_for_an_own_certificate_does_not_cover_another_node() -> None:
    async with bounded_server(tokens={"of-joiner": User("joiner", ("system:authenticated",))}) as server:
        more = ["certificatesigningrequests/selfnodeclient"]
        await server.allow("joiner", {**APPROVAL, "resources": [*APPROVAL["resources"], *more]})
        await server.create(REQUESTS, a_csr("n", KUBELET, CLIENT_USAGES, new_request(*NODE)[0]), token="of-joiner")
        await signed(server, a_csr("last", CLIENT, CLIENT_USAGES, new_request("last")[0]))
        assert not (await server.ask("GET", f"{REQUESTS}/n")).ok()["status"].get("conditions")


async def test_several_signers_make_one_certificate_and_none_of_them_stops() -> None:
    async with bounded_server() as server:
        files = server.pki.ensure_ca()
        authority = Authority(files.cert.read_bytes(), files.key.read_bytes())
        handler = server.server.handler
        others = [CertificateSigner(handler.core, handler.writer, handler.authorizer, authority) for _ in range(3)]
        for signer in others:
            signer.start()
        seen: dict[str, set[str]] = {}
        names = [f"r{number}" for number in range(5)]
        for name in names:
            await server.create(REQUESTS, a_csr(name, CLIENT, CLIENT_USAGES, new_request(name)[0]))
        await asyncio.gather(*(approve(server, name) for name in names))
        for _ in range(3):
            for name in names:
                found = await settled(server, name)
                seen.setdefault(name, set()).add(found["status"]["certificate"])
                assert len(found["status"]["conditions"]) == 1
        assert {len(found) for found in seen.values()} == {1}
        await signed(server, a_csr("more", CLIENT, CLIENT_USAGES, new_request("more")[0]))
        for signer in others:
            await signer.stop()
