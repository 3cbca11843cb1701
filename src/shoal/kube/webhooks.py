"""The client configuration of a webhook: the same field for admission and for conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import FieldError, invalid, required
from shoal.kube import names as syntax

Map = Mapping[str, Any]


def client_config_errors(config: Map, path: str) -> list[FieldError]:
    """The errors of a webhook's client configuration."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    return _url_errors(url, f"{path}.url") if url is not None else _service_errors(service or {}, f"{path}.service")


def _url_errors(url: str, path: str) -> list[FieldError]:
    form = "; desired format: https://host[/path]"
    rest, _, fragment = url.partition("#")
    rest, _, query = rest.partition("?")
    scheme, mark, rest = rest.partition("://")
    if not mark:
        scheme, rest = "", ""
    authority = rest.partition("/")[0]
    user, at, host = authority.rpartition("@")
    errors = []
    if scheme != "https":
        errors.append(invalid(path, scheme, f"'https' is the only allowed URL scheme{form}"))
    if not host:
        errors.append(invalid(path, host, f"host must be specified{form}"))
    if at:
        errors.append(invalid(path, user, "user information is not permitted in the URL"))
    if fragment:
        errors.append(invalid(path, fragment, "fragments are not permitted in the URL"))
    if query:
        errors.append(invalid(path, query, "query parameters are not permitted in the URL"))
    return errors


def _service_errors(service: Map, path: str) -> list[FieldError]:
    errors = [required(f"{path}.{key}") for key in ("name", "namespace") if not service.get(key)]
    port = service.get("port")
    if port is not None and (faults := syntax.is_port_number(port)):
        errors.append(invalid(f"{path}.port", port, "port is not valid: " + ", ".join(faults)))
    url_path, place = service.get("path") or "/", f"{path}.path"
    if url_path == "/":
        return errors
    if url_path == "//":
        return [*errors, invalid(place, url_path, "segment[0] may not be empty")]
    if not url_path.startswith("/"):
        errors.append(invalid(place, url_path, "must start with a '/'"))
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid(place, url_path, f"segment[{index}] may not be empty"))
        else:
            faults = syntax.is_dns1123_subdomain(step)
            errors += (invalid(place, url_path, f"segment[{index}]: {fault}") for fault in faults)
    return errors
