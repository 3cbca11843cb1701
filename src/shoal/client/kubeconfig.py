"""Kubeconfig files: merging several, choosing a context, and turning it into an ``AccessConfig``.

For entries with the same name the first file wins, as in kubectl. Paths are relative to the file that contains them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from shoal.client.config import AccessConfig, ExecPlugin, read_text
from shoal.errors import ConfigError, ShoalError

Section = Mapping[str, Any]

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_INTERACTIVE = ("", "IfAvailable", "Always", "Never")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context and the file that contains it."""

    path: Path
    where: str  # users["admin"].user
    section: Section

    def fault(self, name: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.path}: {self.where}.{name} {problem}")

    def text(self, name: str) -> str:
        value = self.section.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.fault(name, f"is {type(value).__name__}: use a string")
        return value

    def flag(self, name: str) -> bool:
        value = self.section.get(name, False)
        if not isinstance(value, bool):
            raise self.fault(name, f"is {value!r}: use true or false")
        return value

    def pem(self, name: str) -> str:
        """``name-data`` decoded, else the file that ``name`` names."""
        if data := self.text(f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise self.fault(f"{name}-data", "is not base64-encoded PEM") from None
        if named := self.text(name):
            return read_text(self.path.parent / Path(named).expanduser(), f"{self.path}: {self.where}.{name}")
        return ""


@dataclass(slots=True)
class _Merged:
    paths: list[Path] = field(default_factory=list)
    current: str = ""
    sections: dict[str, dict[str, _Entry]] = field(
        default_factory=lambda: {"clusters": {}, "users": {}, "contexts": {}}
    )

    def entry(self, section: str, name: str, needed_by: str) -> _Entry:
        found = self.sections[section].get(name)
        if found is None:
            known = ", ".join(sorted(self.sections[section])) or "none"
            files = ", ".join(map(str, self.paths))
            raise ConfigError(
                f"{files}: {needed_by} names {section[:-1]} {name!r}, which does not exist (known: {known})"
            )
        return found


def load(paths: Sequence[Path], *, context: str = "", must_exist: bool = False) -> AccessConfig:
    """The access that a context of these files gives; the current one unless it is named. Files that do not exist are
    skipped as long as one does."""
    merged = _Merged()
    for path in paths:
        if path.exists() or must_exist:
            _merge(merged, path, _document(path))
    if not merged.paths:
        raise ConfigError(f"no kubeconfig: {', '.join(map(str, paths))} does not exist")
    chosen = context or merged.current
    if not chosen:
        raise ConfigError(f"{merged.paths[0]}: current-context is not set; set it or name a context")
    about = merged.entry("contexts", chosen, "context" if context else "current-context")
    where = f'contexts["{chosen}"]'
    cluster = merged.entry("clusters", about.text("cluster"), f"{where}.cluster")
    user = merged.entry("users", about.text("user"), f"{where}.user") if about.text("user") else None
    return _access(cluster, user, namespace=about.text("namespace") or "default")


def _document(path: Path) -> Section:
    content = read_text(path, "kubeconfig")
    try:
        document = orjson.loads(content)
    except ValueError:
        from shoal.kube import yamlcodec  # only when the file is not JSON

        try:
            document = yamlcodec.loads(content.encode())
        except ShoalError as error:
            raise ConfigError(f"{path}: not a kubeconfig: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a kubeconfig: expected a mapping")
    return document


def _merge(merged: _Merged, path: Path, document: Section) -> None:
    merged.paths.append(path)
    current = document.get("current-context") or ""
    if not isinstance(current, str):
        raise ConfigError(f"{path}: current-context is {current!r}: use a string")
    merged.current = merged.current or current
    for section, entries in merged.sections.items():
        listed = document.get(section) or []
        if not isinstance(listed, list):
            raise ConfigError(f"{path}: {section} must be a list")
        for position, item in enumerate(listed):
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(name, str):
                raise ConfigError(f"{path}: {section}[{position}].name is missing")
            inner = item.get(section[:-1]) or {}
            where = f'{section}["{name}"].{section[:-1]}'
            if not isinstance(inner, dict):
                raise ConfigError(f"{path}: {where} must be a mapping")
            entries.setdefault(name, _Entry(path, where, inner))


def _access(cluster: _Entry, user: _Entry | None, *, namespace: str) -> AccessConfig:
    if not cluster.text("server"):
        raise cluster.fault("server", "is missing: use a URL such as https://host:6443")
    insecure = cluster.flag("insecure-skip-tls-verify")
    ca_pem = cluster.pem("certificate-authority")
    try:
        return AccessConfig(
            url=cluster.text("server"),
            ca_pem=ca_pem,
            insecure=insecure,
            tls_server_name=cluster.text("tls-server-name"),
            proxy_url=cluster.text("proxy-url"),
            namespace=namespace,
            **(_identity(user, cluster, ca_pem) if user is not None else {}),
        )
    except ConfigError as error:
        if str(error).startswith(str(cluster.path)) or (user is not None and str(error).startswith(str(user.path))):
            raise
        raise ConfigError(f"{cluster.path}: {cluster.where}: {error}") from error


def _identity(user: _Entry, cluster: _Entry, ca_pem: str) -> dict[str, Any]:
    if user.section.get("auth-provider"):
        raise user.fault("auth-provider", "is not supported: use an exec plugin")
    token_file = user.text("tokenFile")
    return {
        "client_cert_pem": user.pem("client-certificate"),
        "client_key_pem": user.pem("client-key"),
        "token": "" if token_file else user.text("token"),  # the file wins when both are there
        "token_file": str(user.path.parent / Path(token_file).expanduser()) if token_file else "",
        "username": user.text("username"),
        "password": user.text("password"),
        "exec_plugin": _exec(user, cluster, ca_pem),
        "headers": _impersonation(user),
    }


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    headers = []
    if name := user.text("as"):
        headers.append(("impersonate-user", name))
    if uid := user.text("as-uid"):
        headers.append(("impersonate-uid", uid))
    headers += [("impersonate-group", group) for group in _texts(user, "as-groups")]
    extra = user.section.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise user.fault("as-user-extra", "must be a mapping")
    values = _Entry(user.path, f"{user.where}.as-user-extra", extra)
    headers += [(f"impersonate-extra-{quote(key)}", value) for key in extra for value in _texts(values, key)]
    if headers and not user.text("as"):
        raise user.fault("as", "is missing: the other as-* fields need it")
    return tuple(headers)


def _exec(user: _Entry, cluster: _Entry, ca_pem: str) -> ExecPlugin | None:
    section = user.section.get("exec")
    if not section:
        return None
    if not isinstance(section, dict):
        raise user.fault("exec", "must be a mapping")
    plugin = _Entry(user.path, f"{user.where}.exec", section)
    if not plugin.text("command"):
        raise plugin.fault("command", "is missing")
    if plugin.text("apiVersion") not in _EXEC_VERSIONS:
        raise plugin.fault("apiVersion", f"is {plugin.text('apiVersion')!r}: use {' or '.join(_EXEC_VERSIONS)}")
    mode = plugin.text("interactiveMode")
    if mode not in _INTERACTIVE:
        raise plugin.fault("interactiveMode", f"is {mode!r}: use {', '.join(_INTERACTIVE[1:])}")
    return ExecPlugin(
        command=plugin.text("command"),
        args=_texts(plugin, "args"),
        env=_environment(plugin),
        api_version=plugin.text("apiVersion"),
        install_hint=plugin.text("installHint"),
        interactive_mode=mode or "IfAvailable",
        cluster_info=_cluster_info(cluster, ca_pem) if plugin.flag("provideClusterInfo") else None,
        directory=str(user.path.parent),
    )


def _texts(entry: _Entry, name: str) -> tuple[str, ...]:
    values = entry.section.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise entry.fault(name, "must be a list of strings")
    return tuple(values)


def _environment(plugin: _Entry) -> dict[str, str]:
    try:
        return {str(item["name"]): str(item["value"]) for item in plugin.section.get("env") or []}
    except (TypeError, KeyError):
        raise plugin.fault("env", "must be a list of name and value pairs") from None


def _cluster_info(cluster: _Entry, ca_pem: str) -> dict[str, Any]:
    info: dict[str, Any] = {"server": cluster.text("server")}
    if cluster.text("tls-server-name"):
        info["tls-server-name"] = cluster.text("tls-server-name")
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    if ca_pem:
        info["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    extensions = cluster.section.get("extensions") or []
    for extension in extensions if isinstance(extensions, list) else []:
        if isinstance(extension, dict) and extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info
