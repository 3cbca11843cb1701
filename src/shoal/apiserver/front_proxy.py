"""How this server identifies itself and its users to aggregated API servers.

It connects with a client certificate of an authority of its own, the front proxy's, and names the user in headers. The
ConfigMap ``extension-apiserver-authentication`` tells aggregated servers which authority, names and headers to trust.
The authority signs nothing else: who holds one of its certificates can act as any user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from shoal.apiserver.user import User
from shoal.errors import ConfigError

AUTHENTICATION, SYSTEM = "extension-apiserver-authentication", "kube-system"
CLIENT_NAME = "front-proxy-client"  # common name of the client certificate
AGGREGATOR = User("system:kube-aggregator", ("system:masters",))  # for the server's own requests

USER_HEADER, UID_HEADER, GROUP_HEADER = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group"
EXTRA_PREFIX = "X-Remote-Extra-"

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_IN_NAMES = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxyConfig:
    """The front proxy's authority, and this server's client certificate. Without the files it sends none."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        given = [self.ca, self.certificate, self.key]
        if any(given) and not all(given):
            raise ConfigError("front_proxy: set all of ca, certificate and key, or none of them")


def authentication_data(client_ca: str, proxy: FrontProxyConfig, stored: Mapping[str, str]) -> dict[str, str]:
    """The content of the ConfigMap. Certificates that are there already stay, for other servers of the cluster."""
    data = dict(stored)
    if client_ca:
        data["client-ca-file"] = _with(stored.get("client-ca-file", ""), client_ca)
    if proxy.ca is not None:
        field = "requestheader-client-ca-file"
        data[field] = _with(stored.get(field, ""), proxy.ca.read_text())
        for name, values in (
            ("allowed-names", [CLIENT_NAME]),
            ("username-headers", [USER_HEADER]),
            ("uid-headers", [UID_HEADER]),
            ("group-headers", [GROUP_HEADER]),
            ("extra-headers-prefix", [EXTRA_PREFIX]),
        ):
            data[f"requestheader-{name}"] = orjson.dumps(values).decode()
    return data


def certificates_in(bundle: str) -> list[str]:
    """The certificates of a bundle, each as PEM."""
    return _CERTIFICATE.findall(bundle)


def _with(bundle: str, more: str) -> str:
    """A bundle of certificates with those of another one added."""
    wanted = certificates_in(more)
    if not wanted:
        return more
    return "".join(f"{each}\n" for each in dict.fromkeys((*certificates_in(bundle), *wanted)))


def user_headers(user: User) -> Iterable[tuple[bytes, bytes]]:
    """The headers that name a user."""
    yield USER_HEADER.encode(), _value(user.name)
    if user.uid:
        yield UID_HEADER.encode(), _value(user.uid)
    for group in user.groups:
        yield GROUP_HEADER.encode(), _value(group)
    for key, values in user.extra:
        name = EXTRA_PREFIX.encode() + b"".join(
            bytes((byte,)) if byte in _IN_NAMES else b"%%%02X" % byte for byte in key.encode()
        )
        for value in values:
            yield name, _value(value)


def _value(text: str) -> bytes:
    """A header's value; what would end the line is left out."""
    return text.encode().translate(None, b"\r\n\0")
