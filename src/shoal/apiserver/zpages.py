"""The pages ``/statusz`` and ``/flagz``: when the server started and what it runs, and its settings.

Both are text for people. Clients that ask for the kind of ``config.k8s.io`` get JSON or YAML; other forms are 406, as
in Kubernetes. The settings are those of the API server itself; the content of certificates is not shown.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

import orjson

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.http import Response
from shoal.apiserver.messages import DocumentResponse
from shoal.errors import NotAcceptable
from shoal.kube.objects import Obj
from shoal.kube.schema import kubernetes_version
from shoal.kube.times import format_time

_COMPONENT: Final = "apiserver"
_GROUP: Final = "config.k8s.io"
_TEXT: Final = b"text/plain; charset=utf-8"
_VERSIONS: Final = ("v1beta1", "v1alpha1")
_DEPRECATED: Final = "v1alpha1"
_API_PATHS: Final = ("/api", "/openid", "/openapi", "/.well-known")  # not for debugging
_OPAQUE: Final = frozenset({"ca_certificate", "policy"})
_HEADER: Final = (
    "\n{component} {page}\n"
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only.\n"
)


def statusz(accept: str, *, started_s: float, now_s: float, paths: list[str]) -> Response:
    """The answer to ``/statusz``."""
    version = kubernetes_version()
    shown = [path for path in paths if not path.startswith(_API_PATHS)]
    content = {
        "startTime": format_time(started_s),
        "uptimeSeconds": int(now_s - started_s),
        "goVersion": "",
        "binaryVersion": version,
        "emulationVersion": version.rpartition(".")[0],
        "paths": shown,
    }
    lines = (
        "",
        f"Started: {content['startTime']}",
        f"Up: {_uptime(int(now_s - started_s))}",
        f"Go version: none (CPython {platform.python_version()})",
        f"Binary version: {version}",
        f"Emulation version: {content['emulationVersion']}",
        f"Paths: {' '.join(shown)}",
        "",
    )
    return _page("Statusz", accept, content, "\n".join(lines))


def flagz(accept: str, config: ServerConfig) -> Response:
    """The answer to ``/flagz``."""
    flags = dict(sorted(_settings(config)))
    return _page("Flagz", accept, {"flags": flags}, "".join(f"{name}={value}\n" for name, value in flags.items()))


def _settings(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in fields(config):
        value, name = getattr(config, field.name), prefix + field.name.replace("_", "-")
        if is_dataclass(value) and field.name not in _OPAQUE:
            yield from _settings(value, f"{name}.")
        elif field.name in _OPAQUE:
            yield name, "CLASSIFIED" if value else ""
        elif isinstance(value, tuple | frozenset):
            yield name, ",".join(map(str, sorted(value) if isinstance(value, frozenset) else value))
        else:
            yield name, "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _uptime(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours} hr {rest // 60:02d} min {rest % 60:02d} sec"


def _page(kind: str, accept: str, content: Obj, text: str) -> Response:
    form = _negotiated(kind, accept)
    if form is None:
        body = _HEADER.format(component=_COMPONENT, page=kind.lower()) + text
        return Response(200, body.encode(), _TEXT)
    media, version = form
    warning = f'299 - "This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."'
    headers = [(b"Warning", warning.encode())] if version == _DEPRECATED else []
    metadata = {"name": _COMPONENT}
    document = {"kind": kind, "apiVersion": f"{_GROUP}/{version}", "metadata": metadata, **content}
    if media == "application/json":
        return DocumentResponse(200, orjson.dumps(document), b"application/json", headers)
    from shoal.kube import yamlcodec

    return Response(200, yamlcodec.dumps(document), b"application/yaml", headers)


def _negotiated(kind: str, accept: str) -> tuple[str, str] | None:
    """The media type and version of the first acceptable form; None for text."""
    if not accept.strip():
        return None
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        asked = dict(part.partition("=")[::2] for part in parameters)
        if media in ("application/json", "application/yaml"):
            if (asked.get("as"), asked.get("g")) == (kind, _GROUP) and asked.get("v") in _VERSIONS:
                return media, asked["v"]
        elif media in ("text/plain", "text/*", "*/*") and "as" not in asked:
            return None
    forms = [f"{media};as={kind};v={_VERSIONS[0]};g={_GROUP}" for media in ("application/json", "application/yaml")]
    raise NotAcceptable(
        "only the following media types are accepted: " + ", ".join(["text/plain", *forms]),
    )
