"""Which control plane the commands talk to: ``SHOAL_URL``, ``SHOAL_TOKEN``, ``SHOAL_CA``, else the file of contexts.

    current: local
    contexts:
      - name: local
        url: https://127.0.0.1:7400
        token: shoal_user_…
        ca: |
          -----BEGIN CERTIFICATE-----

The file is ``config.yaml`` in the state directory, readable by its owner only. ``shoal up`` writes the context
``local``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError

FILE = "config.yaml"


@dataclass(frozen=True, slots=True)
class Context:
    """``ca`` is PEM; empty means the system's certificates."""

    name: str
    url: str
    token: str
    ca: str = ""


def current_context(home: Path, name: str = "", environ: Mapping[str, str] = os.environ) -> Context:
    """The one named, else the environment's, else the file's current one."""
    if environ.get("SHOAL_URL") and not name:
        return _from_environment(environ)
    contexts, current = _read(home / FILE)
    wanted = name or current
    if not contexts:
        raise ConfigError(
            f"there is no control plane to talk to: {home / FILE} has no context; start one with `shoal up`, "
            "or set SHOAL_URL, SHOAL_TOKEN and SHOAL_CA"
        )
    if wanted not in contexts:
        raise ConfigError(f"context is {wanted!r}: {home / FILE} has {', '.join(sorted(contexts))}")
    return contexts[wanted]


def save_context(home: Path, context: Context) -> None:
    """Add or replace it and make it the current one; the others stay."""
    import yaml

    path = home / FILE
    contexts, _ = _read(path)
    contexts[context.name] = context
    listed = [{"name": c.name, "url": c.url, "token": c.token, "ca": c.ca} for c in contexts.values()]
    text = yaml.safe_dump({"current": context.name, "contexts": listed}, sort_keys=False)
    temporary = path.with_name(f".{FILE}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def _from_environment(environ: Mapping[str, str]) -> Context:
    token = environ.get("SHOAL_TOKEN", "")
    if not token:
        raise ConfigError("SHOAL_TOKEN is not set: SHOAL_URL needs a token as well")
    ca = environ.get("SHOAL_CA", "")
    if ca and "-----BEGIN" not in ca:
        try:
            ca = Path(ca).read_text()
        except OSError as error:
            raise ConfigError(
                f"SHOAL_CA is {ca!r}: {error.strerror}; give a file of certificates, or leave it out"
            ) from None
    return Context("environment", environ["SHOAL_URL"].rstrip("/"), token, ca)


def _read(path: Path) -> tuple[dict[str, Context], str]:
    import yaml

    try:
        content: Any = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return {}, ""
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        listed = [
            Context(str(each["name"]), str(each["url"]).rstrip("/"), str(each["token"]), str(each.get("ca") or ""))
            for each in content["contexts"]
        ]
        return {context.name: context for context in listed}, str(content.get("current") or "")
    except (TypeError, KeyError):
        raise ConfigError(f"{path} is not a file of contexts: each needs name, url and token") from None
