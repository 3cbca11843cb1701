"""Translates routes and policies of users into the form that gateways read (``shoal.crds.sentinel``). Pure.

Users name apps; gateways need the deployments that serve them now. Everything else stays as the user wrote it, with the
values that were read from it: a gateway refuses what it does not understand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.matchers import Matcher, TextMatch
from shoal.control.domain.kinds.policy import read_policy
from shoal.control.domain.kinds.route import read_route
from shoal.control.domain.routing import RoutedDeployment, Shares, resolve_extras, resolve_route


def route_spec(
    spec: Mapping[str, Any],
    environment: str,
    live: Shares,
    pinned: Mapping[str, RoutedDeployment],
) -> dict[str, Any]:
    """``live`` are the deployments that serve the gateway's region by app, ``pinned`` are by id. One that is missing is
    a backend without a deployment, so that its share of the requests is refused and not sent elsewhere."""
    read = read_route(Reader(spec, "spec", []))
    resolved = resolve_route(spec, live, pinned)
    found: dict[str, Any] = {
        "environment": environment,
        "host": read.host,
        "path": read.path,
        "headers": [{"name": name, **_text(text)} for name, text in read.headers],
        "backends": [
            {"app": backend["app"], "weight": backend["weight"], **_backend(backend["target"])}
            for backend in resolved.get("backends") or ()
        ],
        "timeouts": {"total": read.timeouts.total, "idle": read.timeouts.idle, "header": read.timeouts.header},
        "retries": read.retries,
    }
    if mirror := resolved.get("mirror"):
        found["mirror"] = {"percent": mirror["percent"], **_backend(mirror["target"])}
    if read.sticky is not None:
        found["sticky"] = {"cookie": read.sticky.cookie, "header": read.sticky.header, "ttl": read.sticky.ttl}
    if read.redirect is not None:
        found["redirect"] = read.redirect
    if read.rewrite is not None:
        found["rewrite"] = read.rewrite
    if read.tls:
        found["tls"] = {"secret": read.tls}
    if read.policies is not None:
        found["policies"] = list(read.policies)
    return found


def rollout_spec(spec: Mapping[str, Any], live: Shares) -> dict[str, Any]:
    """What a route has beside its spec while a revision is replaced. Gateways of an earlier version refuse a route
    whose spec has a field that they do not know, and do not look beside the spec."""
    resolved = resolve_extras(spec, live)
    made: dict[str, Any] = {
        name: [{**each, "target": _backend(each["target"])} for each in resolved[name]]
        for name in ("testers", "previews")
        if name in resolved
    }
    if mirrors := resolved.get("mirrors"):
        made["mirrors"] = [{"percent": each["percent"], **_backend(each["target"])} for each in mirrors]
    return made


def policy_spec(spec: Mapping[str, Any], environment: str) -> dict[str, Any]:
    read = read_policy(Reader(spec, "spec", []))
    return {
        "environment": environment,
        "order": read.order,
        "enabled": read.enabled,
        "failOpen": read.fail_open,
        "match": [_condition(matcher) for matcher in read.match],
        "routes": list(read.routes),
        read.kind: read.config,
    }


def _backend(target: Mapping[str, Any] | None) -> dict[str, Any]:
    if target is None:
        return {"deployment": "", "namespace": "", "service": ""}
    return {
        "deployment": target["deployment"],
        "namespace": target["namespace"],
        "service": target["name"],  # its headless Service has its name
        "port": target["port"],
        "protocol": target["protocol"],
    }


def _condition(matcher: Matcher) -> dict[str, Any]:
    if matcher.text is None:
        return {matcher.on: list(matcher.methods)}
    named = {"name": matcher.name} if matcher.name else {}
    return {matcher.on: {**named, **_text(matcher.text)}}


def _text(text: TextMatch) -> dict[str, Any]:
    said: dict[str, Any] = {"present": True} if text.operator == "present" else {text.operator: text.value}
    return {**said, "ignoreCase": True} if text.ignore_case else said
