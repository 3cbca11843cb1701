"""Acting as somebody else: the Impersonate-* headers, for those who may."""

from __future__ import annotations

from urllib.parse import unquote

from shoal.apiserver.authn.authenticator import ANONYMOUS, AUTHENTICATED
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import User
from shoal.apiserver.http import Request
from shoal.errors import InternalError

USER = b"impersonate-user"
_GROUP = b"impersonate-group"
_UID = b"impersonate-uid"
_EXTRA = b"impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"


def impersonated(user: User, request: Request, authorizer: Authorizer) -> User:
    """The user that ``user`` wants to be, as the headers say; Forbidden unless they may be all of it."""
    headers = request.headers
    name = _text(headers.get(USER, b""))
    extra = {
        unquote(_text(header[len(_EXTRA) :])): _values(value)
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    }
    groups, uid = _values(headers.get(_GROUP, b"")), _text(headers.get(_UID, b""))
    if not name:
        raise InternalError("Internal error occurred: groups, uid or extra are impersonated without a user")
    for asked in _asked(name, groups, uid, extra):
        authorizer.check(user, asked)
    return User(name, _with_implied(name, groups), uid, tuple(extra.items()))


def wanted(request: Request) -> bool:
    """Whether the request is one of somebody who acts as somebody else; extra alone makes nobody else."""
    return USER in request.headers or _GROUP in request.headers or _UID in request.headers


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _values(value: bytes) -> tuple[str, ...]:
    return tuple(_text(value).split("\x00")) if value else ()


def _asked(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> list[Attributes]:
    """One question for each thing that is taken on."""
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        asked = [Attributes("impersonate", "", "serviceaccounts", "", namespace, account)]
    else:
        asked = [Attributes("impersonate", "", "users", name=name)]
    asked += [Attributes("impersonate", "", "groups", name=group) for group in groups]
    if uid:
        asked.append(Attributes("impersonate", "authentication.k8s.io", "uids", name=uid))
    for key, values in extra.items():
        asked += [Attributes("impersonate", "authentication.k8s.io", "userextras", key, name=value) for value in values]
    return asked


def _with_implied(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups everybody of that kind is in."""
    if name == ANONYMOUS.name:
        return groups if groups else ANONYMOUS.groups
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
