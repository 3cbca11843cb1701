"""Tokens, access reviews and certificate signing requests."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from shoal.kube.kinds import rules_for
from shoal.kube.kinds.access.signing import check_signer_name, prepare_approval, stamp_conditions, stamp_requester

ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
PATH = "spec.resourceAttributes.labelSelector"
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("TokenRequest", {"spec.expirationSeconds": 599}, [
        "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"
    ]),
    ("TokenRequest", {"spec.expirationSeconds": 2**32 + 1}, [
        f"spec.expirationSeconds: Invalid value: {2**32 + 1}: may not specify a duration larger than 2^32 seconds"
    ]),
    ("TokenReview", {"spec.token": ""}, [
        "spec.token: Required value: token is required for TokenReview in authentication"
    ]),
    ("SubjectAccessReview", {"spec.user": ""}, [
        'spec.user: Invalid value: "": at least one of user or group must be specified'
    ]),
    ("SubjectAccessReview", {"spec.user": "", "spec.groups": ["g"]}, []),
    ("SubjectAccessReview", {"spec.nonResourceAttributes": {"verb": "get"}}, [
        f'spec: Invalid value: {{"verb":"get"}}: {ONE_OF}'
    ]),
    ("SubjectAccessReview", {"spec": {"user": "ann"}}, [f"spec: Invalid value: null: {ONE_OF}"]),
    ("SubjectAccessReview", {"metadata.name": "x"}, ['metadata: Invalid value: {"name":"x"}: must be empty']),
    ("SubjectAccessReview", {PATH: {}}, [
        f"{PATH}.requirements: Required value: when {PATH} is specified, requirements or rawSelector is required"
    ]),
    ("SubjectAccessReview", {PATH: {"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists"}]}}, [
        f'{PATH}.rawSelector: Invalid value: "a": may not specified at the same time as requirements'
    ]),
    ("SubjectAccessReview", {PATH: {"requirements": [{"key": "a", "operator": "In"}]}}, [
        f"{PATH}.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
    ]),
    ("SubjectAccessReview", {PATH: {"requirements": [{"key": "a", "operator": "Sounds like"}]}}, []),
    ("SelfSubjectAccessReview", {"spec": {}}, [f"spec: Invalid value: null: {ONE_OF}"]),
    ("LocalSubjectAccessReview", {"spec.resourceAttributes.namespace": "other"}, [
        'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace'
    ]),
    ("LocalSubjectAccessReview", {"spec": {"user": "ann", "nonResourceAttributes": {"path": "/a"}}}, [
        'spec.nonResourceAttributes: Invalid value: {"path":"/a"}: disallowed on this kind of request'
    ]),
    ("LocalSubjectAccessReview", {"metadata.name": "x"}, [
        'metadata: Invalid value: {"namespace":"shop","name":"x"}: must be empty except for namespace'
    ]),
    ("SelfSubjectRulesReview", {"spec": {}}, ["spec.namespace: Required value: no namespace on request"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


def test_a_token_lives_an_hour(kinds: Any) -> None:
    assert kinds.created("TokenRequest")["spec"]["expirationSeconds"] == 3600


def test_what_the_server_fills_in_does_not_count_as_metadata(kinds: Any) -> None:
    filled = {"metadata.uid": "u", "metadata.creationTimestamp": "2030-01-01T00:00:00Z"}
    assert kinds.faults("SubjectAccessReview", filled) == []


# --- CertificateSigningRequest

RULES = rules_for("certificates.k8s.io", "v1", "CertificateSigningRequest")
NOW, LATER = "2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"


def pem(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.fixture(scope="module")
def csr() -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "ann"},
        "spec": {
            "request": pem(request.public_bytes(serialization.Encoding.PEM)),
            "signerName": "shop.example/people",
            "usages": ["client auth", "digital signature"],
            "expirationSeconds": 600,
        },
    }


def faults(obj: dict[str, Any]) -> list[str]:
    return [str(error) for error in RULES.validate_create(obj)]


def test_a_request_is_signed_by_its_own_key(csr: dict[str, Any]) -> None:
    assert faults(csr) == []
    spec = csr["spec"]
    text = base64.b64decode(spec["request"])
    broken = text[:120] + (b"A" if text[120:121] != b"A" else b"B") + text[121:]
    assert len(faults({**csr, "spec": {**spec, "request": pem(broken)}})) == 1
    nothing = pem(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    assert faults({**csr, "spec": {**spec, "request": nothing}}) == [
        f'spec.request: Invalid value: "{nothing}": PEM block type must be CERTIFICATE REQUEST'
    ]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"usages": []}, ["spec.usages: Required value"]),
        ({"usages": ["any", "any"]}, ['spec.usages[1]: Duplicate value: "any"']),
        ({"signerName": ""}, ["spec.signerName: Required value"]),
        (
            {"signerName": "people"},
            [
                'spec.signerName: Invalid value: "people": '
                "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            ],
        ),
        (
            {"signerName": "shop/people"},
            ['spec.signerName: Invalid value: "shop": should be a domain with at least two segments separated by dots'],
        ),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            [
                'spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": '
                "the legacy signerName is not allowed via this API version"
            ],
        ),
        (
            {"expirationSeconds": 599},
            [
                "spec.expirationSeconds: Invalid value: 599: "
                "may not specify a duration less than 600 seconds (10 minutes)"
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_request(csr: dict[str, Any], edits: dict[str, Any], expected: list[str]) -> None:
    assert faults({**csr, "spec": {**csr["spec"], **edits}}) == expected


def test_unknown_usages_are_refused(csr: dict[str, Any]) -> None:
    (found,) = faults({**csr, "spec": {**csr["spec"], "usages": ["flying"]}})
    assert found.startswith('spec.usages[0]: Unsupported value: "flying": supported values: "any", "cert sign", ')


def test_the_error_of_a_signer_name_names_the_invalid_part() -> None:
    errors: list[Any] = []
    check_signer_name("Shop.example/people", "signerName", errors)
    assert str(errors[0]).startswith('signerName: Invalid value: "Shop.example": validating label "Shop": ')


def test_only_the_server_sets_the_requester(csr: dict[str, Any]) -> None:
    made = copy.deepcopy(csr)
    made["spec"].update(username="root", groups=["system:masters"], uid="0", extra={"a": ["b"]})
    RULES.prepare_create(made)
    assert made["spec"] == csr["spec"]
    stamp_requester(made, username="ann", uid="", groups=["people"], extra={"scopes": ("x",)})
    assert made["spec"]["username"] == "ann"
    assert made["spec"]["groups"] == ["people"]
    assert made["spec"]["extra"] == {"scopes": ["x"]}
    assert "uid" not in made["spec"]


def test_the_spec_of_a_request_never_changes(csr: dict[str, Any]) -> None:
    new = copy.deepcopy(csr)
    new["spec"]["signerName"] = "other.example/x"
    RULES.prepare_update(new, csr)
    assert new["spec"] == csr["spec"]


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def test_a_request_is_approved_on_its_own_path_and_once(csr: dict[str, Any]) -> None:
    approve = RULES.subresource_validation["approval"]
    approved = {**csr, "status": {"conditions": [condition("Approved", reason="good")]}}
    assert approve(approved, csr) == []
    for check in (RULES.validate_status, RULES.validate_update):
        assert [str(error) for error in check(approved, csr)] == [
            'status.conditions: Forbidden: updates may not add a condition of type "Approved"'
        ]
    assert [str(error) for error in approve(csr, approved)] == [
        'status.conditions: Forbidden: updates may not remove a condition of type "Approved"'
    ]
    both = {**csr, "status": {"conditions": [condition("Approved"), condition("Denied")]}}
    assert [str(error) for error in approve(both, csr)] == [
        'status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
    ]
    unsure = {**csr, "status": {"conditions": [condition("Approved", "False")]}}
    assert [str(error) for error in approve(unsure, csr)] == [
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"'
    ]


def test_approving_changes_nothing_but_conditions(csr: dict[str, Any]) -> None:
    old = {**csr, "status": {"certificate": "YQ=="}}
    new = {
        **copy.deepcopy(csr),
        "spec": {"signerName": "x"},
        "status": {"certificate": "Yg==", "conditions": [condition("Approved")]},
    }
    prepare_approval(new, old)
    assert new["spec"] == csr["spec"]
    assert new["status"] == {"certificate": "YQ==", "conditions": [condition("Approved")]}
    assert old["status"] == {"certificate": "YQ=="}


def test_times_of_conditions_are_filled_in(csr: dict[str, Any]) -> None:
    old = {**csr, "status": {"conditions": [condition("Failed", lastTransitionTime=NOW, lastUpdateTime=NOW)]}}
    new = {**csr, "status": {"conditions": [condition("Failed"), condition("Approved")]}}
    stamp_conditions(new, old, LATER)
    failed, approved = new["status"]["conditions"]
    assert (failed["lastTransitionTime"], failed["lastUpdateTime"]) == (NOW, LATER)
    assert (approved["lastTransitionTime"], approved["lastUpdateTime"]) == (LATER, LATER)


def test_a_signer_may_write_back_the_approval_it_read(csr: dict[str, Any]) -> None:
    old = {**csr, "status": {"conditions": [condition("Approved", lastUpdateTime=NOW)]}}
    new = {**csr, "status": {"conditions": [condition("Approved")]}}
    RULES.prepare_status(new, old)
    assert RULES.validate_status(new, old) == []


def test_a_certificate_is_set_once_and_only_on_the_status_path(csr: dict[str, Any]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    from datetime import UTC, datetime

    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2030, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2031, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    text = made.public_bytes(serialization.Encoding.PEM)
    signed = {**csr, "status": {"certificate": pem(text)}}
    assert RULES.validate_status(signed, csr) == []
    assert [str(error) for error in RULES.validate_update(signed, csr)] == [
        "status.certificate: Forbidden: updates may not set certificate content"
    ]
    again = {**csr, "status": {"certificate": pem(text + text)}}
    assert [str(error) for error in RULES.validate_status(again, signed)] == [
        "status.certificate: Forbidden: updates may not modify existing certificate content"
    ]
    for wrong, fault in (
        (b"hello", "must contain at least one CERTIFICATE PEM block"),
        (b"-----BEGIN KEY-----", "only CERTIFICATE PEM blocks are allowed"),
    ):
        found = RULES.validate_status({**csr, "status": {"certificate": pem(wrong)}}, csr)
        assert [str(error) for error in found] == [f'status.certificate: Invalid value: "<certificate data>": {fault}']


def test_requests_are_selected_by_their_signer(csr: dict[str, Any]) -> None:
    assert RULES.selectable["spec.signerName"](csr) == "shop.example/people"


# --- ClusterTrustBundle

BUNDLES = rules_for("certificates.k8s.io", "v1", "ClusterTrustBundle")


def authority(*, ca: bool = True) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "roots")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def bundle(text: str, name: str = "roots", signer: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"trustBundle": text, **({"signerName": signer} if signer else {})}}


def bundle_faults(obj: dict[str, Any]) -> list[str]:
    return [str(error) for error in BUNDLES.validate_create(obj)]


def test_a_bundle_holds_certificates_of_authorities() -> None:
    one, two = authority(), authority()
    assert bundle_faults(bundle(f"comment\n{one}\nmore\n{two}")) == []
    omitted = "spec.trustBundle: Invalid value: <value omitted>: "
    cases = {
        "": "at least one trust anchor must be provided",
        one + authority(ca=False): "entry 1 does not have the CA bit set",
        one.replace("CERTIFICATE", "PUBLIC KEY"): "entry 0 has bad block type: PUBLIC KEY",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "entry 0 does not parse as X.509",
        one.replace("-----\n", "-----\nkey: value\n\n", 1): "entry 0 has PEM block headers",
        one + two + one: "duplicate trust anchor (indices [0 2])",
    }
    for text, fault in cases.items():
        (found,) = bundle_faults(bundle(text))
        assert found.replace('"', "") == (omitted + fault).replace('"', "")
    assert "may not be more than 1048576 bytes" in bundle_faults(bundle("x" * 1_048_577))[0]


def test_the_name_of_a_bundle_begins_with_its_signer() -> None:
    text = authority()
    assert bundle_faults(bundle(text, "shop.example:web:roots", "shop.example/web")) == []
    (found,) = bundle_faults(bundle(text, "roots", "shop.example/web"))
    assert "ClusterTrustBundle for signerName shop.example/web must be named with prefix shop.example:web:" in found
    (found,) = bundle_faults(bundle(text, "shop.example:web:roots"))
    assert 'ClusterTrustBundle without signer name must not have ":" in its name' in found
    old = bundle("not parsed again", "shop.example:web:roots", "shop.example/web")
    assert BUNDLES.validate_update(old, old) == []
    new = bundle("not parsed again", "shop.example:db:roots", "shop.example/db")
    assert any("field is immutable" in str(error) for error in BUNDLES.validate_update(new, old))


# --- PodCertificateRequest

POD_REQUESTS = rules_for("certificates.k8s.io", "v1", "PodCertificateRequest")
NOW = datetime.now(UTC).replace(microsecond=0)
KEY = ec.generate_private_key(ec.SECP256R1())


def stub(key: Any = KEY) -> str:
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, algorithm)
    return base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()


def pod_request(**spec: Any) -> dict[str, Any]:
    given = {
        "signerName": "shop.example/web", "podName": "web-0", "podUID": "u1", "serviceAccountName": "default",
        "serviceAccountUID": "u2", "nodeName": "n1", "nodeUID": "u3", "stubPKCS10Request": stub(),
    }  # fmt: skip
    made = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {**given, **spec}}
    POD_REQUESTS.default(made)
    return made


def pod_faults(**spec: Any) -> list[str]:
    return [str(error) for error in POD_REQUESTS.validate_create(pod_request(**spec))]


def test_a_request_for_a_pod_has_a_day_and_keys_of_the_allowed_kinds() -> None:
    assert pod_request()["spec"]["maxExpirationSeconds"] == 86_400
    for key in (KEY, ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP521R1()),
                rsa.generate_private_key(65537, 3072)):  # fmt: skip
        assert pod_faults(stubPKCS10Request=stub(key)) == []
    (found,) = pod_faults(stubPKCS10Request=stub(rsa.generate_private_key(65537, 2048)))
    assert "RSA keys must have modulus size 3072 or 4096" in found
    (found,) = pod_faults(stubPKCS10Request=stub(ec.generate_private_key(ec.SECP256K1())))
    assert "elliptic public keys must use curve P256, P384, or P521" in found


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"signerName": "web"}, "spec.signerName: Invalid value"),
        ({"podName": "Web"}, "spec.podName: Invalid value"),
        ({"podUID": ""}, 'spec.podUID: Invalid value: "": must not be empty'),
        ({"nodeUID": "u" * 129}, "spec.nodeUID: Too long: may not be more than 128 bytes"),
        ({"maxExpirationSeconds": 3599}, "must be in the range [3600, 7862400]"),
        ({"maxExpirationSeconds": 7_862_401}, "must be in the range [3600, 7862400]"),
        ({"signerName": "kubernetes.io/x", "maxExpirationSeconds": 86_401}, "must be in the range [3600, 86400]"),
        ({"unverifiedUserAnnotations": {"plain": "x"}}, "must be a domain-prefixed key"),
        ({"stubPKCS10Request": "AAAA"}, "must be a valid PKCS#10 CSR"),
        ({"stubPKCS10Request": ""}, "must be a valid PKCS#10 CSR"),
        ({"stubPKCS10Request": base64.b64encode(bytes(10_241)).decode()}, "may not be more than 10240 bytes"),
    ],
)
def test_a_bad_request_for_a_pod_is_refused(spec: dict[str, Any], fault: str) -> None:
    (found,) = pod_faults(**spec)
    assert fault in found


def test_a_csr_that_was_changed_after_it_was_signed_is_refused() -> None:
    content = bytearray(base64.b64decode(stub()))
    content[-1] ^= 1
    (found,) = pod_faults(stubPKCS10Request=base64.b64encode(content).decode())
    assert "spec.stubPKCS10Request" in found


def test_the_spec_of_a_request_for_a_pod_is_fixed() -> None:
    old = pod_request()
    new = copy.deepcopy(old)
    assert POD_REQUESTS.validate_update(new, old) == []
    new["spec"]["podUID"] = "other"
    (found,) = POD_REQUESTS.validate_update(new, old)
    assert "field is immutable" in str(found)
    assert POD_REQUESTS.selectable["spec.nodeName"](old) == "n1"
    assert POD_REQUESTS.selectable["spec.signerName"](old) == "shop.example/web"


def a_leaf(key: Any = KEY, hours: float = 24) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web")])
    issuer = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(hours=hours))
    return made.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def issued(chain: str, *, hours: float = 24, kind: str = "Issued", **more: Any) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": "Done", "lastTransitionTime": at(NOW)}
    times = {
        "notBefore": at(NOW), "notAfter": at(NOW + timedelta(hours=hours)), "beginRefreshAt": at(NOW + timedelta(minutes=30))
    }  # fmt: skip
    return {"conditions": [condition], "certificateChain": chain, **times, **more}


def status_faults(status: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    old = {**pod_request(), "status": before or {}}
    return [str(error) for error in POD_REQUESTS.validate_status({**copy.deepcopy(old), "status": status}, old)]


def test_a_certificate_is_issued_once_to_the_requested_key_with_its_times() -> None:
    good = issued(a_leaf())
    assert status_faults(good) == [] and status_faults({}) == []
    assert status_faults(good, good) == []
    (found,) = status_faults({**good, "beginRefreshAt": at(NOW + timedelta(hours=1))}, good)
    assert "immutable after PodCertificateRequest is issued, denied, or failed" in found
    other = ec.generate_private_key(ec.SECP256R1())
    cases: list[tuple[dict[str, Any], str]] = [
        (issued(""), "must contain at least one certificate"),
        (issued(a_leaf(other)), "leaf certificate was not issued to the requested public key"),
        (issued(a_leaf() + authority().replace("CERTIFICATE", "PUBLIC KEY")), "entirely of CERTIFICATE PEM blocks"),
        (issued(a_leaf(hours=0.5), hours=0.5), "leaf certificate lifetime must be >= 1 hour"),
        (issued(a_leaf(hours=25), hours=25), "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"),
        (issued(a_leaf(), hours=23), "must be set to the NotAfter time encoded in the leaf certificate"),
        (issued(a_leaf(), notBefore=at(NOW - timedelta(minutes=1))), "must be set to the NotBefore time"),
        (issued(a_leaf(), beginRefreshAt=at(NOW)), "must be at least 10 minutes after status.notBefore"),
        (issued(a_leaf(), beginRefreshAt=at(NOW + timedelta(hours=24))), "at least 10 minutes before status.notAfter"),
        (issued(a_leaf(), notAfter=None), "status.notAfter: Required value"),
        (issued(a_leaf(), kind="Denied"), "non-condition status fields must be empty when denying or failing"),
        (issued(a_leaf(), kind="Ready"), "Unsupported value"),
        ({"certificateChain": a_leaf()}, "may not be set unless"),
    ]
    for status, fault in cases:
        found, *_ = status_faults(status)
        assert fault in found


def test_a_request_for_a_pod_ends_in_one_way() -> None:
    denied = {"conditions": issued("", kind="Denied")["conditions"]}
    assert status_faults(denied) == []
    both = {"conditions": [*denied["conditions"], *issued("", kind="Failed")["conditions"]]}
    assert any("There may be at most one condition" in fault for fault in status_faults(both))
    unsure = {"conditions": [{**denied["conditions"][0], "status": "False"}]}
    assert any("Unsupported value" in fault for fault in status_faults(unsure))
