"""Contexts: the control plane of a command, from ``SHOAL_URL``, ``SHOAL_TOKEN`` and ``SHOAL_CA``, else from a file.
The navigator is configured likewise: ``SHOAL_NAVIGATOR_URL``, and ``_TOKEN`` and ``_CA`` if they differ.

    current: local
    contexts:
      - name: local
        url: https://127.0.0.1:7400
        token: shoal_user_…
        ca: |
          -----BEGIN CERTIFICATE-----
        project: demo               # default project of the commands; optional
        environment: production
        navigator: https://127.0.0.1:7410   # shares token and ca unless it has its own

The file is ``config.yaml`` in the state directory, readable by its owner only. ``shoal up`` writes the context
``local``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError

FILE = "config.yaml"


@dataclass(frozen=True, slots=True)
class Context:
    """``ca`` is PEM; empty means the system's CAs. An empty navigator token or CA means the control plane's."""

    name: str
    url: str
    token: str
    ca: str = ""
    project: str = ""
    environment: str = ""
    navigator: str = ""
    navigator_token: str = ""
    navigator_ca: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a file and the name of the current one."""

    known: Mapping[str, Context]
    current: str = ""

    def named(self, name: str, path: Path) -> Context:
        if name not in self.known:
            raise ConfigError(
                f"context {name!r} not found in {path} (existing: {', '.join(sorted(self.known)) or 'none'})"
            )
        return self.known[name]


def shoal_home(environ: Mapping[str, str] = os.environ) -> Path:
    """``$SHOAL_HOME``, else ``~/.shoal``; always absolute."""
    configured = environ.get("SHOAL_HOME")
    return (Path(configured).expanduser() if configured else Path.home() / ".shoal").absolute()


def current_context(home: Path, name: str = "", environ: Mapping[str, str] = os.environ) -> Context:
    """The context ``name``, else the environment's, else the file's current one."""
    if environ.get("SHOAL_URL") and not name:
        return _from_environment(environ)
    if environ.get("SHOAL_TOKEN") and not name:
        raise ConfigError(
            "SHOAL_TOKEN is set but SHOAL_URL is not: set SHOAL_URL to the control plane of this token, "
            "or unset SHOAL_TOKEN to use the current context, or choose one with --context"
        )
    found = read_contexts(home)
    if not found.known:
        raise ConfigError(
            f"no control plane is configured: {home / FILE} has no context; start one with `shoal up`, "
            "or set SHOAL_URL, SHOAL_TOKEN and SHOAL_CA"
        )
    return found.named(name or found.current, home / FILE)


def navigator_context(home: Path, name: str = "", environ: Mapping[str, str] = os.environ) -> Context:
    """Like ``current_context``, with the URL, token and CA of the navigator."""
    url = environ.get("SHOAL_NAVIGATOR_URL", "")
    if url and not name:
        known = _context_or_none(home, environ)
        token = environ.get("SHOAL_NAVIGATOR_TOKEN", "") or (known.token if known is not None else "")
        if not token:
            raise ConfigError("SHOAL_NAVIGATOR_TOKEN is not set: SHOAL_NAVIGATOR_URL needs a token as well")
        ca = _pem("SHOAL_NAVIGATOR_CA", environ.get("SHOAL_NAVIGATOR_CA", "")) or (
            known.ca if known is not None else ""
        )
        return Context("environment", url.rstrip("/"), token, ca)
    found = current_context(home, name, environ)
    if not found.navigator:
        raise ConfigError(
            f"context {found.name!r} has no navigator: `shoal up` starts one, "
            f"`shoal config set-context {found.name} --navigator URL` adds one, or set SHOAL_NAVIGATOR_URL"
        )
    token, ca = found.navigator_token or found.token, found.navigator_ca or found.ca
    return replace(found, url=found.navigator, token=token, ca=ca)


def _context_or_none(home: Path, environ: Mapping[str, str]) -> Context | None:
    return current_context(home, "", environ) if has_context(home, environ) else None


def has_context(home: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether any control plane is known, or a token for one is given."""
    return bool(environ.get("SHOAL_URL") or environ.get("SHOAL_TOKEN") or read_contexts(home).known)


def save_context(home: Path, context: Context) -> None:
    """Add or replace a context and make it current. Empty fields keep the values of the replaced context."""
    found = read_contexts(home)
    before = found.known.get(context.name)
    if before is not None:
        context = replace(
            context,
            project=context.project or before.project,
            environment=context.environment or before.environment,
            navigator=context.navigator or before.navigator,
            navigator_token=context.navigator_token or before.navigator_token,
            navigator_ca=context.navigator_ca or before.navigator_ca,
        )
    write_contexts(home, Contexts({**found.known, context.name: context}, context.name))


def write_contexts(home: Path, contexts: Contexts) -> None:
    import yaml

    listed = [
        {name: value for name, value in asdict(each).items() if value or name in ("name", "url", "token", "ca")}
        for each in contexts.known.values()
    ]
    from shoal.base.files import own_private_dir, write_private

    text = yaml.safe_dump({"current": contexts.current, "contexts": listed}, sort_keys=False)
    own_private_dir(home, f"SHOAL_HOME is {str(home)!r}")
    write_private(home / FILE, text.encode())


def _from_environment(environ: Mapping[str, str]) -> Context:
    token = environ.get("SHOAL_TOKEN", "")
    if not token:
        raise ConfigError("SHOAL_TOKEN is not set: SHOAL_URL needs a token as well")
    return Context(
        "environment", environ["SHOAL_URL"].rstrip("/"), token, _pem("SHOAL_CA", environ.get("SHOAL_CA", ""))
    )


def _pem(setting: str, given: str) -> str:
    """``given`` itself if it is PEM, else the content of the file that it names."""
    if not given or "-----BEGIN" in given:
        return given
    try:
        return Path(given).read_text()
    except OSError as error:
        raise ConfigError(
            f"{setting} is {given!r}: {error.strerror}; use a file with CA certificates, or unset it"
        ) from None


def read_contexts(home: Path) -> Contexts:
    """The contexts of the file; none if it does not exist."""
    import yaml

    path = home / FILE
    try:
        content: Any = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    except FileNotFoundError:
        return Contexts({})
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        listed = [_context(each) for each in content["contexts"]]
        return Contexts({context.name: context for context in listed}, str(content.get("current") or ""))
    except (TypeError, KeyError):
        raise ConfigError(f"{path} is not a valid context file: every context needs name, url and token") from None


def _context(given: Mapping[str, Any]) -> Context:
    return Context(
        name=str(given["name"]),
        url=str(given["url"]).rstrip("/"),
        token=str(given["token"]),
        ca=str(given.get("ca") or ""),
        project=str(given.get("project") or ""),
        environment=str(given.get("environment") or ""),
        navigator=str(given.get("navigator") or "").rstrip("/"),
        navigator_token=str(given.get("navigator_token") or ""),
        navigator_ca=str(given.get("navigator_ca") or ""),
    )
