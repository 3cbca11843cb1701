"""Impersonation: the Impersonate-* headers, for users who are allowed to use them."""

from __future__ import annotations

from urllib.parse import unquote

from shoal.apiserver.authn.credential import ANONYMOUS, AUTHENTICATED
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.http import Request
from shoal.apiserver.user import User
from shoal.errors import BadRequest
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain

_ANY = b"impersonate-"
USER = b"impersonate-user"
_GROUP = b"impersonate-group"
_UID = b"impersonate-uid"
_EXTRA = b"impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_UNAUTHENTICATED = ANONYMOUS.groups[0]


def impersonated(user: User, request: Request, authorizer: Authorizer) -> User:
    """The user that the headers name; Forbidden unless ``user`` may impersonate every part of it."""
    headers = request.headers
    name, uid = _first(headers.get(USER, b"")), _first(headers.get(_UID, b""))
    groups = _values(headers.get(_GROUP, b""))
    extra = {
        unquote(_text(header[len(_EXTRA) :])): _values(value)
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    }
    if not name:
        asked = [("group", ", ".join(groups)), ("uid", uid), ("extra", ", ".join(extra))]
        shown = ", ".join(f"{kind} {value}" for kind, value in asked if value)
        raise BadRequest(f"requested {shown} without impersonating a user")
    for attributes in _asked(name, groups, uid, extra):
        authorizer.check(user, attributes)
    return User(name, _with_implied(name, groups), uid, tuple(extra.items()))


def wanted(request: Request) -> bool:
    """Whether the request has impersonation headers."""
    for name in request.headers:
        if name[:12] == _ANY and (name in (USER, _GROUP, _UID) or name.startswith(_EXTRA)):
            return True
    return False


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _values(value: bytes) -> tuple[str, ...]:
    return tuple(_text(value).split("\x00")) if value else ()


def _first(value: bytes) -> str:
    return _text(value.partition(b"\x00")[0])


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account in a user's name."""
    if not name.startswith(_ACCOUNT):
        return None
    namespace, separator, account = name.removeprefix(_ACCOUNT).partition(":")
    if not separator or is_dns1123_label(namespace) or is_dns1123_subdomain(account):
        return None
    return namespace, account


def _asked(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> list[Attributes]:
    """One authorization check for each impersonated attribute."""
    account = _account(name)
    if account is not None:
        asked = [Attributes("impersonate", "", "serviceaccounts", "", *account)]
    else:
        asked = [Attributes("impersonate", "", "users", name=name)]
    asked += [Attributes("impersonate", "", "groups", name=group) for group in groups]
    for key, values in extra.items():
        asked += [Attributes("impersonate", "authentication.k8s.io", "userextras", key, name=value) for value in values]
    if uid:
        asked.append(Attributes("impersonate", "authentication.k8s.io", "uids", name=uid))
    return asked


def _with_implied(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups with those that every such user is in."""
    if name == ANONYMOUS.name:
        return groups if _UNAUTHENTICATED in groups else (*groups, _UNAUTHENTICATED)
    account = _account(name)
    if account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    return groups if AUTHENTICATED in groups or _UNAUTHENTICATED in groups else (*groups, AUTHENTICATED)
