"""Route: which requests of a host go to which apps of an environment, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_header, is_host, is_name, is_path
from shoal.control.domain.kinds.matchers import TextMatch, read_named_match
from shoal.errors import duplicate, forbidden, invalid

MAX_BACKENDS = 50
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class RouteBackend:
    """An app and its share. ``deployment`` pins one revision; else it is the app's live one."""

    app: str
    weight: int = 100
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class Sticky:
    """Requests with the same value go to the same instance. One of the two is set."""

    cookie: str = ""
    header: str = ""
    ttl: int = 0  # seconds; 0: as long as the browser runs


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; 0 means none."""

    total: float = 60.0
    idle: float = 300.0
    header: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    host: str
    path: str = "/"
    headers: tuple[tuple[str, TextMatch], ...] = ()
    backends: tuple[RouteBackend, ...] = ()
    sticky: Sticky | None = None
    mirror: tuple[str, float] | None = None  # app and percent
    redirect: dict[str, Any] | None = None
    rewrite: dict[str, str] | None = None
    timeouts: Timeouts = Timeouts()
    retries: int = 2
    tls: str = ""  # Secret with tls.crt and tls.key, as variables TLS_CRT and TLS_KEY
    policies: tuple[str, ...] | None = None  # None: every policy of the environment, in their order

    @property
    def apps(self) -> tuple[str, ...]:
        """Every app it names, once."""
        named = [backend.app for backend in self.backends]
        if self.mirror:
            named.append(self.mirror[0])
        return tuple(dict.fromkeys(named))


def read_route(spec: Reader) -> RouteSpec:
    goes = spec.one_of(("app", "backends", "redirect"))
    redirect = _redirect(spec.part("redirect"))
    mirror = _mirror(spec.part("mirror"))
    rewrite = _rewrite(spec.part("rewrite"))
    sticky = _sticky(spec.part("sticky"))
    tls = spec.part("tls")
    for name, given in (("mirror", mirror), ("rewrite", rewrite), ("sticky", sticky)):
        if goes == "redirect" and given is not None:
            spec.note(forbidden(spec.at(name), "may not be used together with redirect"))
    made = RouteSpec(
        host=spec.text("host", need=True, check=is_host).lower(),
        path=spec.text("path", "/", check=is_path),
        headers=tuple(read_named_match(part) for part in spec.parts("headers", 20)),
        backends=_backends(spec),
        sticky=sticky,
        mirror=mirror,
        redirect=redirect,
        rewrite=rewrite,
        timeouts=_timeouts(spec.part("timeouts")),
        retries=spec.integer("retries", 2, 0, 10),
        tls=_tls(tls) if tls is not None else "",
        policies=spec.texts("policies", check=is_name, unique=True) if spec.has("policies") else None,
    )
    spec.raw("policies")
    spec.close()
    return made


def _backends(spec: Reader) -> tuple[RouteBackend, ...]:
    app = spec.text("app", check=is_name)
    if app:
        spec.raw("backends")
        return (RouteBackend(app),)
    found: list[RouteBackend] = []
    for part in spec.parts("backends", MAX_BACKENDS):
        backend = RouteBackend(
            part.text("app", need=True, check=is_name),
            part.integer("weight", 100, 0, 1_000_000),
            part.text("deployment"),
        )
        if any((other.app, other.deployment) == (backend.app, backend.deployment) for other in found):
            part.note(duplicate(part.at("app"), backend.app))
        found.append(backend)
        part.close()
    if found and not sum(backend.weight for backend in found):
        spec.note(invalid(spec.at("backends"), 0, "at least one weight must be more than 0"))
    return tuple(found)


def _sticky(part: Reader | None) -> Sticky | None:
    if part is None:
        return None
    part.one_of(("cookie", "header"))
    made = Sticky(
        part.text("cookie", check=is_header), part.text("header", check=is_header), part.integer("ttl", 0, 0, 2**31)
    )
    part.close()
    return made


def _mirror(part: Reader | None) -> tuple[str, float] | None:
    if part is None:
        return None
    made = (part.text("app", need=True, check=is_name), part.number("percent", 100.0, 0.0, 100.0))
    part.close()
    return made


def _redirect(part: Reader | None) -> dict[str, Any] | None:
    if part is None:
        return None
    code = part.integer("code", 302, 300, 399)
    if code not in REDIRECTS:
        part.note(invalid(part.at("code"), code, f"must be one of {', '.join(map(str, REDIRECTS))}"))
    found = {
        "scheme": part.choice("scheme", ("http", "https")),
        "host": part.text("host", check=is_host),
        "path": part.text("path", check=is_path),
        "prefix": part.text("prefix", check=is_path),
    }
    if found["path"] and found["prefix"]:
        part.note(forbidden(part.at("prefix"), "may not be used together with path"))
    part.close()
    given: dict[str, Any] = {name: value for name, value in found.items() if value}
    return {**given, "code": code}


def _rewrite(part: Reader | None) -> dict[str, str] | None:
    if part is None:
        return None
    found = {"prefix": part.text("prefix", check=is_path), "host": part.text("host", check=is_host)}
    part.close()
    return {name: value for name, value in found.items() if value}


def _timeouts(part: Reader | None) -> Timeouts:
    if part is None:
        return Timeouts()
    made = Timeouts(
        part.number("total", 60.0, 0.0, 86400.0),
        part.number("idle", 300.0, 0.0, 86400.0),
        part.number("header", 0.0, 0.0, 3600.0),
    )
    part.close()
    return made


def _tls(part: Reader) -> str:
    secret = part.text("secret", need=True, check=is_name)
    part.close()
    return secret
