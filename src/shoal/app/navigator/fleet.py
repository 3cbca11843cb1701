"""Deployments of the control plane, polled over its API, for queries about apps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.app.config import LOOPBACK
from shoal.app.fleet.context_file import noted_address
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.cli.contexts import Context
from shoal.cli.rest import CannotReach, RequestRefused, Rest
from shoal.kube.objects import Obj

_EVERY_S = 10.0
_REVISIONS = 50  # of an app: older ones have no pods
_ROOT = "/api/v1"

_log = get_logger("navigator.fleet")


class ControlFleet:
    """Implements ``Fleet``. Without a control plane it is empty."""

    def __init__(self, control: Path | None, *, clock: Clock) -> None:
        """``control`` is the directory of a control plane on this machine."""
        self._control = control
        self._clock = clock
        self._rest: Rest | None = None
        self._by_app: dict[str, tuple[Any, list[Obj]]] = {}  # path → version of the app, its deployments
        self._away = False

    def deployments(self) -> Iterator[Obj]:
        for _, found in self._by_app.values():
            yield from found

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._control is not None:
                try:
                    self._by_app = await asyncio.to_thread(self._read, self._control)
                    self._away = False
                except (CannotReach, RequestRefused, OSError, KeyError, TypeError) as error:
                    if not self._away:
                        _log.warning("reading deployments from the control plane failed", reason=str(error))
                    self._away = True
            await self._clock.sleep(_EVERY_S)

    async def close(self) -> None:
        if self._rest is not None:
            self._rest.interrupt()
            self._rest.close()

    def _read(self, folder: Path) -> dict[str, tuple[Any, list[Obj]]]:
        if self._rest is None or self._away:
            self._rest = Rest(_context(folder))
        found: dict[str, tuple[Any, list[Obj]]] = {}
        position = ""
        while True:
            page = self._rest.get(f"{_ROOT}/apps", limit=500, **{"continue": position})
            for app in page["items"]:
                path, version = _path(app["metadata"]), _version(app)
                before = self._by_app.get(path)
                found[path] = before if before is not None and before[0] == version else (version, self._of(app, path))
            position = page.get("continue") or ""
            if not position:
                return found

    def _of(self, app: Obj, path: str) -> list[Obj]:
        assert self._rest is not None
        metadata = app["metadata"]
        named = {"app": metadata["name"], "project": metadata["project"], "environment": metadata["environment"]}
        revisions = self._rest.get(f"{path}/deployments", limit=_REVISIONS)["items"]
        return [{**named, **{name: one.get(name) for name in _KEPT}} for one in revisions]


_KEPT = ("id", "revision", "name", "image", "status", "state", "live", "createdAt")


def _path(metadata: Obj) -> str:
    project, environment, name = (quote(metadata[part], safe="") for part in ("project", "environment", "name"))
    return f"{_ROOT}/projects/{project}/environments/{environment}/apps/{name}"


def _version(app: Obj) -> Any:
    """Changes when a deployment is added, and when another one is live."""
    status = app.get("status") or {}
    return app["metadata"].get("version"), status.get("deployment"), status.get("live"), status.get("revision")


def _context(folder: Path) -> Context:
    address = noted_address(folder) or f"https://{LOOPBACK}:{int((folder / 'port').read_text())}"
    token = (folder / "admin.token").read_text().strip()
    return Context("control", address, token, (folder / "pki" / "ca.crt").read_text())
