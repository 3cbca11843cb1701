"""What a support bundle holds: versions, checks, settings, logs, metrics and the state of the fleet, without secrets.

Three things keep secrets out. Files with keys, tokens and databases are not read into it: logs are, by their names.
What looks like a credential is replaced, wherever it stands. And so is every secret of this machine that is known: the
tokens of contexts and state directories, master keys, and variables with secret names.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sqlite3
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.app.settings import PROCESSES
from shoal.base import settings
from shoal.base.clock import Clock
from shoal.base.logs import REDACTED, is_secret_name, redact
from shoal.cli.contexts import Context, read_contexts
from shoal.cli.rest import Rest
from shoal.errors import ShoalError

LOG_BYTES = 1_000_000  # of each log, from its end
LOGS = 40  # the newest ones
_SHORTEST_SECRET = 8  # shorter values would replace parts of words
_SECRET_FILES = ("*.token", "*.key", "join.json", "edge.json", "tokens.json", "kubeconfig", "config.yaml")

_TOKEN = re.compile(r"\bshoal_[a-z]+_[A-Za-z0-9_-]{8,}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_ASSIGNED = re.compile(
    r"""(?i)((?:password|passwd|secret|token|api[_-]?key|private[_-]?key|authorization)\\?["']?\s*[=:]\s*\\?["']?)"""
    r"""([^\s"'\\,;}&]{4,})"""
)
_QUOTED_VALUE = re.compile(r"""(?:token|password|key-data|secret)["']?\s*:\s*["']?([A-Za-z0-9+/=_.~-]{8,})""")

# What is asked of a control plane and a navigator. Specs and the audit log have variables of apps, so they stay out.
_CONTROL = {
    "whoami.json": "/api/v1",
    "status.json": "/api/v1/status",
    "agents.json": "/api/v1/agents",
    "events.json": "/api/v1/events?limit=500",
    "control-metrics.txt": "/metrics",
}
_NAVIGATOR = {"clusters.json": "/api/v1/clusters", "navigator-metrics.txt": "/metrics"}


class Redaction:
    """Replaces secrets in a text: those that are known, and what looks like one."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = sorted({each for each in known if len(each) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, REDACTED)
        text = _PRIVATE_KEY.sub(REDACTED, text)
        text = _TOKEN.sub(REDACTED, str(redact(text)))
        return _ASSIGNED.sub(lambda found: found[0] if REDACTED in found[2] else f"{found[1]}{REDACTED}", text)


def known_secrets(state: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets that this machine has: in files of the state directory, and in variables."""
    for pattern in _SECRET_FILES:
        for path in state.rglob(pattern):
            content = _text(path, 200_000)
            if path.suffix in (".token", ".key"):
                yield content.strip()
                yield from (line for line in content.splitlines() if "-----" not in line)
            yield from _QUOTED_VALUE.findall(content)
    for name, value in environ.items():
        if is_secret_name(name.lower()):
            yield value


def bundle(
    state: Path, context: Context | None, navigator: Context | None, checks: list[dict[str, Any]], *,
    environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None],
) -> bytes:  # fmt: skip
    """The bundle as a compressed archive."""
    clean = Redaction(known_secrets(state, environ))
    made = io.BytesIO()
    now = clock.wall_s()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in _parts(state, context, navigator, checks, environ, tell):
            data = clean(text).encode(errors="replace")
            entry = tarfile.TarInfo(f"shoal-support/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(now), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _parts(
    state: Path, context: Context | None, navigator: Context | None, checks: list[dict[str, Any]],
    environ: Mapping[str, str], tell: Callable[[str], None],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    tell("versions and settings")
    yield "versions.json", _json(_versions())
    yield "checks.json", _json(checks)
    yield "files.json", _json(list(_files(state)))
    yield from _settings(state, environ)
    tell("logs")
    for path in _logs(state):
        yield f"logs/{path.relative_to(state)}", _text(path, LOG_BYTES)
    for name, asked, known in (("control plane", _CONTROL, context), ("navigator", _NAVIGATOR, navigator)):
        if known is not None:
            tell(f"the {name} at {known.url}")
            yield from _answers(known, asked)


def _versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "shoal": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }  # fmt: skip


def _settings(state: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings that each process would start with here; secrets are left out of them."""
    for name, kind in PROCESSES.items():
        try:
            found: Any = settings.effective(
                kind.settings, file=kind.file(None, environ), environ=environ, prefix=kind.prefix,
                variables=kind.variables, defaults=kind.defaults(state),
            )  # fmt: skip
            yield f"settings/{name}.json", _json([asdict(each) for each in found])
        except (ShoalError, OSError) as error:
            yield f"settings/{name}.json", _json({"error": str(error)})
    contexts = read_contexts(state)
    shown = [{"name": each.name, "url": each.url, "navigator": each.navigator} for each in contexts.known.values()]
    yield "settings/contexts.json", _json({"current": contexts.current, "contexts": shown})


def _files(state: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(state.rglob("*")):
        try:
            found = path.lstat()
        except OSError:  # gone meanwhile
            continue
        yield {
            "path": str(path.relative_to(state)), "bytes": found.st_size, "mode": f"{found.st_mode & 0o7777:o}",
            "changed": int(found.st_mtime), "owner": found.st_uid,
        }  # fmt: skip


def _logs(state: Path) -> list[Path]:
    """The newest logs of processes. Those of pods belong to the apps, and audit logs have the bodies of requests."""
    found = [
        path
        for path in state.rglob("*.log")
        if path.is_file() and "nodes" not in path.relative_to(state).parts and "audit" not in path.name
    ]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:LOGS]


def _answers(context: Context, asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    rest = Rest(context)
    try:
        for name, path in asked.items():
            try:
                found = rest.get(path)
                yield f"fleet/{name}", found if isinstance(found, str) else _json(found)
            except ShoalError as error:
                yield f"fleet/{name}.error", f"{error}\n"
    finally:
        rest.close()


def _text(path: Path, most: int) -> str:
    """The end of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False) + "\n"
