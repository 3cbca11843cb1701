"""Secrets that hold tokens of service accounts."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from authn_server import WHO_AM_I, AuthnServer, bounded_server, parts

from shoal.base.clock import FakeClock
from shoal.testing.waiting import eventually

LAST_USED = "kubernetes.io/legacy-token-last-used"
SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/robot"
MERGE = {"content-type": "application/merge-patch+json"}


def a_secret(name: str = "s", account: str = "robot", **notes: str) -> dict[str, Any]:
    annotations = {"kubernetes.io/service-account.name": account, **notes}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
    }


async def filled(server: AuthnServer, name: str = "s", field: str = "token") -> Any:
    """The Secret once it has the field."""

    async def with_field() -> Any:
        secret = (await server.ask("GET", f"{SECRETS}/{name}")).ok()
        return secret if field in (secret.get("data") or {}) else None

    return await eventually(with_field)


async def gone(server: AuthnServer, name: str = "s") -> None:
    async def is_gone() -> bool:
        return (await server.ask("GET", f"{SECRETS}/{name}")).status == 404

    await eventually(is_gone)


def text(secret: Any, name: str) -> str:
    return base64.b64decode(secret["data"][name]).decode()


async def status(server: AuthnServer, token: str) -> int:
    return (await server.ask("POST", WHO_AM_I, {}, token=token)).status


async def test_a_secret_for_a_token_is_filled_in_and_its_token_is_good() -> None:
    async with bounded_server() as server:
        uid = (await server.account())["metadata"]["uid"]
        await server.create(SECRETS, a_secret())
        secret = await filled(server)
        assert text(secret, "ca.crt") == "the authority"
        assert text(secret, "namespace") == "default"
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == uid
        token = text(secret, "token")
        assert parts(token)[1] == {
            "iss": "kubernetes/serviceaccount",
            "sub": "system:serviceaccount:default:robot",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "s",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        }
        found = await server.who(token=token)
        assert found["username"] == "system:serviceaccount:default:robot"
        assert found["uid"] == uid


async def test_what_is_already_there_stays() -> None:
    async with bounded_server() as server:
        await server.account()
        mine = a_secret() | {"stringData": {"token": "mine", "extra": "more"}}
        await server.create(SECRETS, mine)
        secret = await filled(server, field="ca.crt")
        assert (text(secret, "token"), text(secret, "extra")) == ("mine", "more")
        assert await status(server, "mine") == 401


async def test_the_token_ends_when_its_secret_is_deleted_changed_or_marked() -> None:
    async with bounded_server() as server:
        await server.account()
        for name, change in {
            "deleted": None,
            "changed": {"stringData": {"token": "another"}},
            "marked": {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2024-01-01"}}},
        }.items():
            await server.create(SECRETS, a_secret(name))
            token = text(await filled(server, name), "token")
            assert await status(server, token) == 201
            if change is None:
                (await server.ask("DELETE", f"{SECRETS}/{name}")).ok()
            else:
                (await server.ask("PATCH", f"{SECRETS}/{name}", change, headers=MERGE)).ok()
            assert await status(server, token) == 401, name


async def test_the_day_of_the_last_use_is_noted() -> None:
    clock = FakeClock(datetime(2024, 1, 1, 23, 59, tzinfo=UTC))

    async with bounded_server(clock=clock) as server:

        async def label() -> Any:
            return (await server.ask("GET", f"{SECRETS}/s")).ok()["metadata"].get("labels", {}).get(LAST_USED)

        async def noted(day: str) -> bool:
            return bool(await label() == day)

        await server.account()
        await server.create(SECRETS, a_secret())
        token = text(await filled(server), "token")
        assert await label() is None
        assert await status(server, token) == 201
        await eventually(lambda: noted("2024-01-01"))
        assert await status(server, token) == 201
        await clock.advance(61)
        assert await status(server, token) == 201
        await eventually(lambda: noted("2024-01-02"))


async def test_secrets_go_with_their_account_and_secrets_of_no_account_go_at_once() -> None:
    async with bounded_server() as server:
        await server.account()
        await server.create(SECRETS, a_secret())
        token = text(await filled(server), "token")
        await server.create(SECRETS, {"metadata": {"name": "plain"}, "stringData": {"a": "b"}})
        (await server.ask("DELETE", ACCOUNT)).ok()
        assert await status(server, token) == 401
        await gone(server)
        await server.account()
        for name, secret in {
            "nobody": a_secret("nobody", "nobody"),
            "former": a_secret("former", **{"kubernetes.io/service-account.uid": "another"}),
        }.items():
            assert (await server.ask("POST", SECRETS, secret)).status == 201
            await gone(server, name)
        (await server.ask("GET", f"{SECRETS}/plain")).ok()
