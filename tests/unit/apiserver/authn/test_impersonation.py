"""Impersonation of users, groups and service accounts."""

from __future__ import annotations

from typing import Any

import pytest
from authn_server import WHO_AM_I, bounded_server

from shoal.apiserver.authn.impersonation import impersonated
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.http import Request
from shoal.apiserver.user import User

ALICE = User("alice", ("system:authenticated",))


class Everything(Authorizer):
    """Allows all and remembers the questions."""

    def __init__(self) -> None:
        self.asked: list[Attributes] = []

    def check(self, user: User, attributes: Attributes) -> None:
        self.asked.append(attributes)


def as_(**headers: str) -> tuple[User, list[Attributes]]:
    sent = {f"impersonate-{name.replace('_', '-')}".encode(): value.encode() for name, value in headers.items()}
    authorizer = Everything()
    return impersonated(ALICE, Request("GET", b"/", sent), authorizer), authorizer.asked


def test_everything_that_is_taken_on_is_asked_for() -> None:
    extra = {"extra-scopes": "view\x00edit", "extra-example.com%2fteam": "blue"}
    user, asked = as_(user="bob", group="dev\x00ops", uid="u1", **extra)
    assert user == User(
        "bob",
        ("dev", "ops", "system:authenticated"),
        "u1",
        (("scopes", ("view", "edit")), ("example.com/team", ("blue",))),
    )
    group = "authentication.k8s.io"
    assert asked == [
        Attributes("impersonate", "", "users", name="bob"),
        Attributes("impersonate", "", "groups", name="dev"),
        Attributes("impersonate", "", "groups", name="ops"),
        Attributes("impersonate", group, "userextras", "scopes", name="view"),
        Attributes("impersonate", group, "userextras", "scopes", name="edit"),
        Attributes("impersonate", group, "userextras", "example.com/team", name="blue"),
        Attributes("impersonate", group, "uids", name="u1"),
    ]


@pytest.mark.parametrize(
    ("headers", "groups"),
    [
        ({"user": "bob"}, ("system:authenticated",)),
        ({"user": "bob", "group": "system:authenticated"}, ("system:authenticated",)),
        ({"user": "bob", "group": "system:unauthenticated"}, ("system:unauthenticated",)),
        ({"user": "system:anonymous"}, ("system:unauthenticated",)),
        ({"user": "system:anonymous", "group": "dev"}, ("dev", "system:unauthenticated")),
        (
            {"user": "system:serviceaccount:ns:sa"},
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        ({"user": "system:serviceaccount:ns:sa", "group": "dev"}, ("dev", "system:authenticated")),
    ],
)
def test_impersonated_users_are_in_the_groups_of_their_kind(headers: dict[str, str], groups: tuple[str, ...]) -> None:
    assert as_(**headers)[0].groups == groups


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("system:serviceaccount:ns:sa", Attributes("impersonate", "", "serviceaccounts", "", "ns", "sa")),
        ("system:serviceaccount:ns", Attributes("impersonate", "", "users", name="system:serviceaccount:ns")),
        ("system:serviceaccount:ns:", Attributes("impersonate", "", "users", name="system:serviceaccount:ns:")),
        ("system:serviceaccount::sa", Attributes("impersonate", "", "users", name="system:serviceaccount::sa")),
        ("system:serviceaccount:a:b:c", Attributes("impersonate", "", "users", name="system:serviceaccount:a:b:c")),
    ],
)
def test_only_a_whole_name_is_a_service_account_s(name: str, asked: Attributes) -> None:
    assert as_(user=name)[1] == [asked]


async def test_a_refusal_names_the_user_and_the_resource_and_headers_without_a_user_are_refused() -> None:
    async with bounded_server(tokens={"of-alice": ALICE}) as server:

        async def refused(code: int, token: str = "of-alice", **headers: str) -> str:
            sent = {f"impersonate-{name}": value for name, value in headers.items()}
            return (await server.ask("POST", WHO_AM_I, {}, token=token, headers=sent)).refused(code)

        assert await refused(403, user="bob") == (
            'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" '
            "at the cluster scope"
        )
        assert await refused(403, user="system:serviceaccount:default:robot") == (
            'serviceaccounts "robot" is forbidden: User "alice" cannot impersonate resource "serviceaccounts" '
            'in API group "" in the namespace "default"'
        )
        rule: dict[str, Any] = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
        await server.allow("alice", {**rule, "resourceNames": ["bob"]})
        found = await server.who(token="of-alice", headers={"impersonate-user": "bob"})
        assert found == {"username": "bob", "groups": ["system:authenticated"]}
        assert 'groups "system:masters" is forbidden' in await refused(403, user="bob", group="system:masters")
        message = await refused(403, user="bob", uid="1")
        assert 'cannot impersonate resource "uids" in API group "authentication.k8s.io"' in message
        message = await refused(403, user="bob", **{"extra-a%2fb": "x"})
        assert 'cannot impersonate resource "userextras/a/b" in API group "authentication.k8s.io"' in message
        assert "without impersonating a user" in await refused(400, group="dev")
        assert "without impersonating a user" in await refused(400, uid="1")


async def test_impersonating_anonymous_gives_no_more_than_anonymous_has() -> None:
    async with bounded_server() as server:
        answer = await server.ask("GET", "/metrics", headers={"impersonate-user": "system:anonymous"})
        assert 'User "system:anonymous" cannot get path "/metrics"' in answer.refused(403)


@pytest.mark.parametrize("header", ["group", "uid", "extra-scopes"])
async def test_impersonated_groups_uid_and_extra_need_a_user(header: str) -> None:
    async with bounded_server() as server:
        answer = await server.ask("POST", WHO_AM_I, {}, headers={f"Impersonate-{header}": "x"})
        assert "without impersonating a user" in answer.refused(400)
