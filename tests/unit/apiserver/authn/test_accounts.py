"""Tokens of service accounts: what they say, whom they are for, and when they end."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import orjson
import pytest
from authn_server import ADMIN, ISSUER, WHO_AM_I, AuthnServer, bounded_server, parts
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from shoal.apiserver.authn.keys import SigningKeys
from shoal.app.pki import service_account_keys
from shoal.base.clock import FakeClock
from shoal.store import Entry, Key

SECRETS = "/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


async def is_good(server: AuthnServer, token: str) -> bool:
    answer = await server.ask("POST", WHO_AM_I, {}, token=token)
    assert answer.status in (201, 401), answer.body
    return answer.status == 201


def bound(kind: str, name: str, **more: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "name": name, **more}


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()


async def test_a_token_authenticates_as_its_account() -> None:
    async with bounded_server() as server:
        uid = (await server.account())["metadata"]["uid"]
        token = await server.token()
        _, claims = parts(token)
        assert await server.who(token=token) == {
            "username": "system:serviceaccount:default:robot",
            "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]},
        }
        assert claims["kubernetes.io"] == {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}}
        assert claims["exp"] - claims["iat"] == 3600
        assert (claims["iss"], claims["aud"], claims["nbf"]) == (ISSUER, [ISSUER], claims["iat"])


async def test_the_answer_to_a_token_request_is_complete() -> None:
    clock = FakeClock()

    async with bounded_server(clock=clock) as server:
        account = await server.account()
        found = (await server.request_token(expirationSeconds=600, audiences=["a", "b"])).ok()
        assert (found["kind"], found["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
        assert found["metadata"] == {
            "name": "robot", "namespace": "default", "uid": account["metadata"]["uid"],
            "creationTimestamp": "2024-01-01T00:00:00Z",
        }  # fmt: skip
        assert found["spec"] == {"expirationSeconds": 600, "audiences": ["a", "b"]}
        assert found["status"]["expirationTimestamp"] == "2024-01-01T00:10:00Z"


async def test_a_token_verifies_with_the_published_keys() -> None:
    async with bounded_server() as server:
        await server.account()
        header, _ = parts(token := await server.token())
        configuration = (await server.ask("GET", "/.well-known/openid-configuration")).ok()
        assert configuration == {
            "issuer": ISSUER,
            "jwks_uri": "https://127.0.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        (key,) = (await server.ask("GET", "/openid/v1/jwks")).ok()["keys"]
        assert header == {"alg": key["alg"], "kid": key["kid"]}
        assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("EC", "P-256", "sig", "ES256")
        x, y = (int.from_bytes(base64.urlsafe_b64decode(key[name] + "=="), "big") for name in "xy")
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        text, _, signature = token.rpartition(".")
        raw = base64.urlsafe_b64decode(signature + "==")
        numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
        public.verify(encode_dss_signature(*numbers), text.encode(), ec.ECDSA(hashes.SHA256()))


async def test_only_our_own_signature_counts() -> None:
    async with bounded_server() as server:
        await server.account()
        token = await server.token()
        header, claims = parts(token)
        text, _, signature = token.rpartition(".")
        other = "A" if signature[0] != "A" else "B"
        more = encoded({**claims, "exp": claims["exp"] + 9999})
        none = encoded({**header, "alg": "none"})
        foreign = SigningKeys(
            ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        public = service_account_keys(server.folder).signing
        shared = encoded({**header, "alg": "HS256"}) + "." + encoded(claims)
        mac = base64.urlsafe_b64encode(hmac.digest(public, shared.encode(), hashlib.sha256)).rstrip(b"=").decode()
        forged = {
            "changed signature": f"{text}.{other}{signature[1:]}",
            "no signature": f"{text}.",
            "changed claims": f"{encoded(header)}.{more}.{signature}",
            "algorithm none": f"{none}.{encoded(claims)}.",
            "algorithm none with a signature": f"{none}.{encoded(claims)}.{signature}",
            "symmetric": f"{shared}.{mac}",
            "another key": foreign.sign(claims),
            "zeros": f"{text}.{'A' * 86}",
            "not base64": f"{text}.*",
            "header of another kind": f"{encoded([])}.{encoded(claims)}.{signature}",
        }
        for name, given in forged.items():
            assert not await is_good(server, given), name
            assert not (await server.review(given))["authenticated"], name
        assert await is_good(server, token)


async def test_our_signature_under_another_algorithm_s_name_does_not_count() -> None:
    async with bounded_server() as server:
        await server.account()
        header, claims = parts(await server.token())
        key: Any = load_pem_private_key(service_account_keys(server.folder).signing, None)

        def signed(algorithm: str) -> str:
            text = encoded({**header, "alg": algorithm}) + "." + encoded(claims)
            r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
            raw = r.to_bytes(32, "big") + s.to_bytes(32, "big")
            return f"{text}.{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}"

        assert await is_good(server, signed("ES256"))
        for algorithm in ("none", "RS256", "HS256", "ES512", ""):
            assert not await is_good(server, signed(algorithm)), algorithm


async def test_a_token_ends_with_its_time_and_a_minute_for_clocks_that_differ() -> None:
    clock = FakeClock()

    async with bounded_server(clock=clock) as server:
        await server.account()
        token = await server.token(expirationSeconds=600)
        await clock.advance(659)
        assert await is_good(server, token)
        await clock.advance(2)
        assert not await is_good(server, token)
        assert (await server.review(token))["error"] == "[invalid bearer token, service account token has expired]"


async def test_a_token_for_another_audience_is_refused_but_its_review_names_the_audience() -> None:
    async with bounded_server() as server:
        await server.account()
        token = await server.token(audiences=["vault", "spire"])
        assert not await is_good(server, token)
        assert not (await server.review(token))["authenticated"]
        found = await server.review(token, audiences=["spire", "other"])
        assert found["authenticated"] is True
        assert found["audiences"] == ["spire"]
        error = (await server.review(token, audiences=["other"]))["error"]
        assert error == (
            '[invalid bearer token, token audiences ["vault" "spire"] is invalid for the target audiences ["other"]]'
        )
        both = await server.token(audiences=[ISSUER, "vault"])
        assert await is_good(server, both)
        assert (await server.review(both))["audiences"] == [ISSUER]


async def test_a_token_ends_with_its_account_and_does_not_come_back_with_a_new_one() -> None:
    async with bounded_server() as server:
        await server.account()
        token = await server.token()
        assert await is_good(server, token)
        path = "/api/v1/namespaces/default/serviceaccounts/robot"
        (await server.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)).ok()
        assert await is_good(server, token), "a change of the account is no end"
        (await server.ask("DELETE", path)).ok()
        assert not await is_good(server, token)
        await server.account()
        assert not await is_good(server, token)


MERGE = {"content-type": "application/merge-patch+json"}


async def test_a_pod_s_token_names_pod_and_node_and_ends_with_the_pod() -> None:
    async with bounded_server() as server:
        await server.account()
        node = (await server.create(NODES, {"metadata": {"name": "n1"}}))["metadata"]["uid"]
        pod = (await server.pod(nodeName="n1"))["metadata"]["uid"]
        token = await server.token(boundObjectRef=bound("Pod", "p", uid=pod))
        found = (await server.who(token=token))["extra"]
        assert {name.rpartition("/")[2]: values for name, values in found.items() if "credential" not in name} == {
            "pod-name": ["p"], "pod-uid": [pod], "node-name": ["n1"], "node-uid": [node],
        }  # fmt: skip
        assert (await server.review(token))["user"]["extra"] == found
        (await server.ask("DELETE", f"{NODES}/n1")).ok()
        assert await is_good(server, token), "of a pod's token the node is only a note"
        (await server.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")).ok()
        assert not await is_good(server, token)
        assert "invalidated" in (await server.review(token))["error"]


async def test_a_pod_that_is_being_deleted_keeps_its_token_for_a_minute() -> None:
    clock = FakeClock()

    async with bounded_server(clock=clock) as server:
        await server.account()
        await server.create(NODES, {"metadata": {"name": "n1"}})
        await server.pod(nodeName="n1", terminationGracePeriodSeconds=30)
        token = await server.token(boundObjectRef=bound("Pod", "p"))
        assert await is_good(server, token)
        (await server.ask("DELETE", f"{PODS}/p")).ok()
        await clock.advance(89)
        assert await is_good(server, token)
        await clock.advance(2)
        assert not await is_good(server, token)


@pytest.mark.parametrize("kind", ["Secret", "Node"])
async def test_a_token_ends_with_what_it_is_bound_to(kind: str) -> None:
    async with bounded_server() as server:
        await server.account()
        path = NODES if kind == "Node" else SECRETS
        uid = (await server.create(path, {"metadata": {"name": "thing"}}))["metadata"]["uid"]
        token = await server.token(boundObjectRef=bound(kind, "thing"))
        assert parts(token)[1]["kubernetes.io"][kind.lower()] == {"name": "thing", "uid": uid}
        assert await is_good(server, token)
        (await server.ask("DELETE", f"{path}/thing")).ok()
        assert not await is_good(server, token)
        await server.create(path, {"metadata": {"name": "thing"}})
        assert not await is_good(server, token), "another one of that name is another one"


async def test_what_cannot_be_bound_is_refused_as_kubernetes_words_it() -> None:
    async with bounded_server() as server:
        await server.account()
        await server.account("other")
        pod = (await server.pod())["metadata"]["uid"]

        async def refused(code: int, account: str = "robot", **reference: str) -> str:
            return (await server.request_token(account, boundObjectRef=reference)).refused(code)

        assert await refused(404, **bound("Pod", "missing")) == 'pods "missing" not found'
        message = await refused(400, "other", **bound("Pod", "p"))
        assert message == (
            'cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.'
        )
        message = await refused(409, **bound("Pod", "p", uid="old"))
        assert message.startswith(
            'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (old)'
        )
        (await server.request_token(boundObjectRef=bound("Pod", "p", uid=pod))).ok()
        assert (
            await refused(400, **bound("ConfigMap", "c")) == "cannot bind token to object of type /v1, Kind=ConfigMap"
        )
        message = await refused(400, apiVersion="apps/v1", kind="Pod", name="p")
        assert message == "cannot bind token to object of type apps/v1, Kind=Pod"


async def test_token_requests_are_validated() -> None:
    async with bounded_server() as server:
        uid = (await server.account())["metadata"]["uid"]
        for seconds in (599, 0, -1):
            message = (await server.request_token(expirationSeconds=seconds)).refused(422)
            assert f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than" in message
        message = (await server.request_token(expirationSeconds=(1 << 32) + 1)).refused(422)
        assert "may not specify a duration larger than 2^32 seconds" in message
        message = (await server.request_token(metadata={"name": "x"})).refused(422)
        assert 'metadata.name: Invalid value: "x": must match the service account name if specified' in message
        message = (await server.request_token(metadata={"namespace": "x"})).refused(422)
        assert "must match the service account namespace if specified" in message
        message = (await server.request_token(metadata={"uid": "x"})).refused(409)
        assert f"the UID in the token request (x) does not match the UID of the service account ({uid})" in message
        (await server.request_token(metadata={"name": "robot", "namespace": "default", "uid": uid})).ok()
        assert (await server.request_token("nobody")).refused(404) == 'serviceaccounts "nobody" not found'


async def test_the_token_that_pods_mount_lasts_a_year_and_says_when_it_should_have_been_renewed() -> None:
    clock = FakeClock()

    async with bounded_server(clock=clock) as server:
        await server.account()
        await server.pod()
        reference = bound("Pod", "p")
        found = (await server.request_token(expirationSeconds=3607, boundObjectRef=reference)).ok()
        assert found["status"]["expirationTimestamp"] == "2024-01-01T01:00:07Z"
        _, claims = parts(found["status"]["token"])
        assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
        assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
        for spec in (
            {"expirationSeconds": 3607},
            {"expirationSeconds": 3608, "boundObjectRef": reference},
            {"expirationSeconds": 3607, "boundObjectRef": reference, "audiences": [ISSUER, "other"]},
        ):
            _, claims = parts(await server.token(**spec))
            assert claims["exp"] - claims["iat"] == spec["expirationSeconds"]
            assert "warnafter" not in claims["kubernetes.io"]
        await clock.advance(4000)
        assert await is_good(server, found["status"]["token"])


async def test_after_a_rotation_the_new_key_signs_and_the_old_one_verifies_until_it_is_removed() -> None:
    async with bounded_server() as server:
        await server.account()
        before = await server.token()
        assert await is_good(server, before)

        def reload() -> None:
            keys = service_account_keys(server.folder)
            server.server.authentication.replace_keys(keys.signing, keys.older)

        kept = server.pki.rotate_service_account_key()
        reload()
        after = await server.token()
        names = [parts(token)[0]["kid"] for token in (after, before)]
        assert len(set(names)) == 2
        assert await is_good(server, before)
        assert await is_good(server, after)
        assert [key["kid"] for key in (await server.ask("GET", "/openid/v1/jwks")).ok()["keys"]] == names
        kept.unlink()
        reload()
        assert not await is_good(server, before)
        assert await is_good(server, after)


async def test_a_token_of_objects_that_only_another_server_knows_is_looked_at_again() -> None:
    async with bounded_server() as server:
        store = server.server.core.store
        await server.account()
        token = await server.token()
        get, behind = store.get, [True]

        async def fresh() -> int:
            behind[0] = False
            return store.revision

        def stale_get(key: Key) -> Entry | None:
            return None if behind[0] and key.resource == "serviceaccounts" else get(key)

        store.fresh, store.get = fresh, stale_get  # type: ignore[method-assign]
        assert await is_good(server, token)
        assert not behind[0]
        behind[0] = True
        assert not await is_good(server, token[:-4] + "AAAA")
        assert behind[0], "a signature that is not ours is worth no second look"


async def test_a_signature_is_checked_once_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    verify = SigningKeys.verify

    def counted(self: SigningKeys, token: str) -> Any:
        checked.append(token)
        return verify(self, token)

    monkeypatch.setattr(SigningKeys, "verify", counted)

    async with bounded_server() as server:
        await server.account()
        await server.pod()
        token = await server.token(boundObjectRef=bound("Pod", "p"))
        for number in range(5):
            assert await is_good(server, token)
            change = {"metadata": {"labels": {"n": str(number)}}}
            (await server.ask("PATCH", f"{PODS}/p", change, headers=MERGE)).ok()
        assert len(checked) == 1
        assert ADMIN not in checked
