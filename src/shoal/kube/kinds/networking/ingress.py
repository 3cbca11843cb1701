"""Ingress and IngressClass."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from shoal.kube.kinds.checks import (
    Errors,
    check_port_number,
    check_required_name,
    check_syntax,
)
from shoal.kube.kinds.common import check_domain_prefixed_path, check_frozen, fill, read
from shoal.kube.names import (
    is_dns1123_label,
    is_dns1123_subdomain,
    is_ip_legacy,
    is_path_segment_name,
    is_port_name,
    is_wildcard_dns1123_subdomain,
    parse_ip,
)
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS: Final = ("/..", "/.")
_MAX_CONTROLLER: Final = 250
_SCOPES: Final = ("Cluster", "Namespace")
_NOT_A_NAME: Final = "must be a DNS name, not an IP address"


def _check_host(host: str, path: str, errors: Errors) -> None:
    check_syntax(host, is_wildcard_dns1123_subdomain if "*" in host else is_dns1123_subdomain, path, errors)


def _check_object_reference(reference: Obj, path: str, errors: Errors) -> None:
    group = reference.get("apiGroup")
    if group is not None:
        check_syntax(group, is_dns1123_subdomain, f"{path}.apiGroup", errors)
    check_required_name(reference.get("kind"), is_path_segment_name, f"{path}.kind", errors)
    check_required_name(reference.get("name"), is_path_segment_name, f"{path}.name", errors)


def _check_service(service: Obj, path: str, errors: Errors) -> None:
    check_required_name(service.get("name"), is_dns1123_label, f"{path}.service.name", errors)
    port = read(service, "port")
    name, number = port.get("name"), port.get("number")
    if name and number:
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        check_syntax(name, is_port_name, f"{path}.service.port.name", errors)
    elif number:
        check_port_number(number, f"{path}.service.port.number", errors)
    else:
        errors.append(required(path, "port name or number is required"))


def _check_backend(backend: Obj, path: str, errors: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.append(invalid(path, "", "cannot set both resource and service backends"))
    elif resource is not None:
        _check_object_reference(resource, f"{path}.resource", errors)
    elif service is not None:
        _check_service(service, path, errors)
    else:
        errors.append(invalid(path, "", "resource or service backend is required"))


def _check_path(entry: Obj, path: str, errors: Errors) -> None:
    kind, url = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        errors.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    where = f"{path}.path"
    if kind not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    elif kind == "ImplementationSpecific":
        if url and not url.startswith("/"):
            errors.append(invalid(where, url, "must be an absolute path"))
    else:
        if not url.startswith("/"):
            errors.append(invalid(where, url, "must be an absolute path"))
        for part in _BAD_SEQUENCES:
            if part in url:
                errors.append(invalid(where, url, f"must not contain '{part}'"))
        for part in _BAD_ENDINGS:
            if url.endswith(part):
                errors.append(invalid(where, url, f"cannot end with '{part}'"))
    _check_backend(read(entry, "backend"), f"{path}.backend", errors)


def _check_rule(rule: Obj, path: str, errors: Errors) -> None:
    host = rule.get("host")
    if host:
        if parse_ip(host) is not None:
            errors.append(invalid(f"{path}.host", host, _NOT_A_NAME))
        _check_host(host, f"{path}.host", errors)
    http = rule.get("http")
    if http is not None:
        paths = http.get("paths") or ()
        if not paths:
            errors.append(required(f"{path}.http.paths"))
        for position, entry in enumerate(paths):
            _check_path(entry, f"{path}.http.paths[{position}]", errors)


def _check_spec(spec: Obj, errors: Errors) -> None:
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and backend is None:
        errors.append(invalid("spec", rules, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        _check_backend(backend, "spec.defaultBackend", errors)
    for position, rule in enumerate(rules):
        _check_rule(rule, f"spec.rules[{position}]", errors)
    for position, tls in enumerate(spec.get("tls") or ()):
        path = f"spec.tls[{position}]"
        for index, host in enumerate(tls.get("hosts") or ()):
            _check_host(host, f"{path}.hosts[{index}]", errors)
        if tls.get("secretName"):
            check_syntax(tls["secretName"], is_dns1123_subdomain, f"{path}.secretName", errors)
    name = spec.get("ingressClassName")
    if name is not None:
        check_syntax(name, is_dns1123_subdomain, "spec.ingressClassName", errors)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_spec(spec, errors)
    annotated = read(obj["metadata"], "annotations").get(_CLASS_ANNOTATION)
    name = spec.get("ingressClassName")
    if annotated is not None and name is not None and annotated != name:
        text = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotated, text))
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(read(new, "spec"), errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for position, entry in enumerate(read(read(new, "status"), "loadBalancer").get("ingress") or ()):
        path = f"status.loadBalancer.ingress[{position}]"
        if entry.get("ip"):
            check_syntax(entry["ip"], is_ip_legacy, f"{path}.ip", errors)
        host = entry.get("hostname")
        if host:
            check_syntax(host, is_dns1123_subdomain, f"{path}.hostname", errors)
            if parse_ip(host) is not None:
                errors.append(invalid(f"{path}.hostname", host, _NOT_A_NAME))
    return errors


def _warnings(obj: Obj) -> list[str]:
    annotated = _CLASS_ANNOTATION in read(obj["metadata"], "annotations")
    if annotated and read(obj, "spec").get("ingressClassName") is None:
        return [f"annotation \"{_CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]
    return []


def _default_class(obj: Obj) -> None:
    parameters = read(obj, "spec").get("parameters")
    if parameters is not None:
        fill(parameters, "scope", "Cluster")


def _check_parameters(parameters: Obj, path: str, errors: Errors) -> None:
    _check_object_reference(parameters, path, errors)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.append(required(f"{path}.scope"))
    elif scope not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", scope, _SCOPES))
    elif scope == "Namespace":
        if namespace is None:
            errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            check_syntax(namespace, is_dns1123_label, f"{path}.namespace", errors)
    elif namespace is not None:
        errors.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))


def _validate_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    controller = spec.get("controller") or ""
    if len(controller) > _MAX_CONTROLLER:
        errors.append(too_long("spec.controller", _MAX_CONTROLLER))
    check_domain_prefixed_path(controller, "spec.controller", errors)
    parameters = spec.get("parameters")
    if parameters is not None:
        _check_parameters(parameters, "spec.parameters", errors)
    return errors


def _validate_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    after, before = read(new, "spec").get("controller"), read(old, "spec").get("controller")
    check_frozen(after, before, "spec.controller", errors)
    return errors + _validate_class(new)


INGRESS: Final = KindRules(
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=_warnings,
)
INGRESS_CLASS: Final = KindRules(
    default=_default_class, validate_create=_validate_class, validate_update=_validate_class_update
)
