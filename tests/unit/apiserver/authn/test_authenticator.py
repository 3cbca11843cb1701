"""Static bearer tokens, anonymous requests, and what a refusal says and does not say."""

from __future__ import annotations

import pytest
from authn_server import ADMIN, WHO_AM_I, bounded_server

from shoal.apiserver.authn import authenticator
from shoal.apiserver.authn.credential import Credential
from shoal.apiserver.context import ServerConfig
from shoal.apiserver.http import Request
from shoal.apiserver.user import User
from shoal.base.clock import FakeClock
from shoal.base.ids import token_digest

NAMESPACES = "/api/v1/namespaces"
ALICE = User("alice", ("dev", "system:authenticated"), "u1")


async def test_a_token_stands_for_its_user() -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        assert await server.who(token="of-alice") == {
            "username": "alice",
            "groups": ["dev", "system:authenticated"],
            "uid": "u1",
        }


async def test_a_token_ends_at_its_instant_even_when_it_was_just_used() -> None:
    clock = FakeClock()

    async with bounded_server(clock=clock, tokens={"short": Credential(ALICE, clock.wall_s() + 60)}) as server:
        assert (await server.who(token="short"))["username"] == "alice"
        await clock.advance(59.9)
        assert (await server.who(token="short"))["username"] == "alice"
        await clock.advance(0.2)
        (await server.ask("POST", WHO_AM_I, {}, token="short")).refused(401)


async def test_a_revoked_token_is_refused_at_once_and_a_new_one_accepted() -> None:
    async with bounded_server(tokens={"old": ALICE}) as server:
        await server.who(token="old")
        (await server.ask("GET", NAMESPACES, token="new")).refused(401)
        server.server.authentication.authenticator.replace_tokens({token_digest("new"): ALICE})
        (await server.ask("GET", NAMESPACES, token="old")).refused(401)
        (await server.ask("GET", NAMESPACES, token=ADMIN)).refused(401)
        assert (await server.who(token="new"))["username"] == "alice"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x.y.z",
        "Bearer ..",
        "Basic YWRtaW46YWRtaW4=",
        f"Token {ADMIN}",
        ADMIN,
        "Bearer \xff",
    ],
)
async def test_a_request_without_valid_credentials_gets_a_401_status(header: str) -> None:
    async with bounded_server() as server:
        answer = await server.ask("GET", NAMESPACES, token=None, headers={"authorization": header})
        assert answer.json == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
            "reason": "Unauthorized", "code": 401,
        }  # fmt: skip
        assert answer.status == 401
        assert answer.headers[b"www-authenticate"].startswith(b"Bearer")


async def test_headers_of_a_front_proxy_are_never_believed() -> None:
    claims = {
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "X-Remote-Extra-Scopes": "all",
        "X-Forwarded-User": "admin",
    }

    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        (await server.ask("GET", NAMESPACES, token=None, headers=claims)).refused(401)
        found = await server.who(token="of-alice", headers=claims)
        assert found == await server.who(token="of-alice")


async def test_without_credentials_only_health_and_version_are_open() -> None:
    async with bounded_server() as server:
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await server.ask("GET", path, token=None)).status == 200
        for path in ("/", "/api", "/metrics", "/openapi/v2", NAMESPACES, "/healthz/ping", "/openid/v1/jwks"):
            (await server.ask("GET", path, token=None)).refused(401)


async def test_anonymous_requests_go_through_authorization_when_they_are_allowed() -> None:
    async with bounded_server(config=ServerConfig(anonymous=True)) as server:
        message = (await server.ask("GET", NAMESPACES, token=None)).refused(403)
        assert message.startswith(
            'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group ""'
        )
        message = (await server.ask("GET", "/metrics", token=None)).refused(403)
        assert 'User "system:anonymous" cannot get path "/metrics"' in message
        assert (await server.ask("GET", "/healthz", token=None)).status == 200
        (await server.ask("GET", NAMESPACES, token="not known")).refused(401)
        await server.allow("system:anonymous", {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]})
        (await server.ask("GET", NAMESPACES, token=None)).ok()


@pytest.mark.parametrize("secret", ["a-secret-nobody-may-see", "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJ4In0.c2VjcmV0"])
async def test_a_token_appears_in_no_answer_and_in_no_log(
    secret: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded_server() as server:
        answers = [await server.ask("GET", path, token=secret) for path in (NAMESPACES, "/metrics", "/nowhere")]
        answers.append(await server.ask("POST", WHO_AM_I, {"spec": 1}, token=secret))
        review = await server.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": secret}})
        assert secret not in review.json["status"]["error"]

        def broken(request: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(server.server.handler.authenticator, "user_of", broken)
        from shoal.apiserver.http import Request

        request = Request("GET", b"/api", {b"authorization": f"Bearer {secret}".encode()})
        try:
            await server.server.handler.handle(request)
        except RuntimeError as error:
            response = server.server.handler.on_error(request, error)
            assert secret.encode() not in response.body
        assert not any(secret.encode() in answer.body for answer in answers)
    shown = capfd.readouterr()
    assert "unexpected error" in shown.err
    assert secret not in shown.err + shown.out


async def test_a_review_of_a_static_token_knows_its_user_and_the_audience() -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:
        found = await server.review("of-alice")
        assert found["authenticated"] is True
        assert found["user"]["username"] == "alice"
        assert found["audiences"] == [ServerConfig().issuer]
        assert await server.review("of-alice", audiences=["vault"]) == {
            "authenticated": False, "user": {}, "error": "invalid bearer token",
        }  # fmt: skip
        assert (await server.review("of-nobody"))["error"] == "invalid bearer token"


@pytest.mark.parametrize(("padding", "checks"), [(1, 1), (50_000, 3)])
async def test_a_long_header_is_accepted_but_checked_again_every_time(
    padding: int, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    monkeypatch.setattr(authenticator, "token_digest", lambda token: checked.append(token) or token_digest(token))
    async with bounded_server() as server:
        header = b"Bearer " + b" " * padding + ADMIN.encode()
        for _ in range(3):
            request = Request("GET", NAMESPACES.encode(), {b"authorization": header})
            assert server.server.handler.authenticator.user_of(request).name
        assert checked == [ADMIN] * checks
