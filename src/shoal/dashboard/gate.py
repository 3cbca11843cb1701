"""Which requests of browsers are trusted: the cookie of a session, and who may use it from where.

A browser sends a cookie whoever made it send the request. So a request with one must name this server as its host
(else a name of somebody else could lead here: DNS rebinding), must come from a page of this server where the browser
says where it comes from, and, if it may change something, must have a header that no other site's page can send.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from shoal.errors import BadRequest, Forbidden
from shoal.rest.request import RestRequest

PAGE_HEADER = "x-shoal-page"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}
_SAME_SITE = frozenset({"same-origin", "none"})  # none: typed in by the user, or a bookmark
_is_host = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?").fullmatch
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class RequestedHost:
    """What a browser calls this server."""

    scheme: str
    text: str  # as in the header, in lower case
    name: str
    port: int

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.text}"


class PageGate:
    """``names``: under which this server is reached with TLS; without TLS these are only those of this machine."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(name.lower().strip("[]") for name in names)

    def host(self, request: RestRequest) -> RequestedHost:
        """``Forbidden`` for a name that is not this server's."""
        text = (request.header("host") or request.header(":authority") or "").lower()
        scheme = request.scope.get("scheme") or "http"
        name, port = _split(text, _PORTS.get(scheme, 0))
        known = self._names if scheme == "https" else _LOOPBACK
        if name not in known:
            fix = (
                f"start the control plane with --advertise-url https://{name}"
                if scheme == "https" and name
                else "without TLS the page is only for browsers on its own machine, at http://127.0.0.1"
            )
            raise Forbidden(f"the page is not served under the name {name[:100]!r}: {fix}")
        return RequestedHost(scheme, text, name, port)

    def check(self, request: RestRequest) -> RequestedHost:
        """``Forbidden`` for a request that a page of another site may have made, or that changes something without
        saying that a page of ours made it."""
        host = self.host(request)
        origin = request.header("origin")
        if origin is not None and origin.lower() != host.origin:
            raise Forbidden(f"the request comes from a page of {origin[:100]!r}, not of {host.origin!r}")
        site = request.header("sec-fetch-site")
        if site is not None and site not in _SAME_SITE:
            raise Forbidden(f"the request comes from a page of another site ({site[:20]})")
        if request.method not in _SAFE and request.header(PAGE_HEADER) != "1":
            raise Forbidden("a change with the cookie of a session needs the header 'X-Shoal-Page: 1'")
        return host

    def session_text(self, request: RestRequest) -> str:
        """The text of the session of a request that may use it; empty without one."""
        if request.header("cookie") is None:
            return ""
        return request.cookie(cookie_name(self.check(request)))

    def credential(self, request: RestRequest) -> str:
        """The token of a request to the API, else its session. Without TLS a token is never taken."""
        if request.header("authorization") is None:
            return self.session_text(request)
        if request.scope.get("scheme") == "http":
            raise BadRequest("a token is only taken over https; this port is for the page")
        return request.bearer()


def cookie_name(host: RequestedHost) -> str:
    """With the port, since servers on other ports of a machine share its cookies."""
    return f"shoal-session-{host.port}"


def session_cookie(host: RequestedHost, text: str, *, age_s: float) -> str:
    """The header that sets it; with an empty text the one that removes it."""
    secure = "; Secure" if host.scheme == "https" else ""
    return f"{cookie_name(host)}={text}; Path=/; Max-Age={round(age_s)}; HttpOnly; SameSite=Strict{secure}"


def _split(text: str, default: int) -> tuple[str, int]:
    """Name and port of a Host header; an empty name for what is none."""
    found = _is_host(text)
    if found is None:
        return "", default
    return found[1] or found[2], int(found[3]) if found[3] else default
