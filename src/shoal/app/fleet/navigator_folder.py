"""How the control plane reaches the navigator, as files: they may come, change and be mounted while it runs.

FOLDER/url                 https://HOST:PORT
FOLDER/ca.crt              the authority of its certificate; without the file, those of the system
FOLDER/tokens/WORKSPACE    a viewer's token with the scope ``workspace=WORKSPACE``

The page needs no token: it asks with grants. Where the folder does not name a navigator, it uses the one whose
directory is beside the control plane's (``shoal.app.fleet.context_file``).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.app.fleet.context_file import noted_address
from shoal.app.home import NAVIGATOR_CA as CA
from shoal.app.home import NAVIGATOR_TOKENS as TOKENS
from shoal.app.home import NAVIGATOR_URL as URL
from shoal.control.api.access import is_workspace
from shoal.control.checks.navigator import NavigatorAccess
from shoal.dashboard.navigator import NavigatorPlace
from shoal.errors import ConfigError


class NavigatorFolder:
    """Is a ``shoal.control.checks.navigator.NavigatorAccesses`` and ``shoal.dashboard.navigator.NavigatorPlaces``.
    ``beside`` is the directory that a navigator on this machine would have."""

    def __init__(self, folder: Path, beside: Path | None = None) -> None:
        self._folder = folder
        self._beside = beside

    async def place(self) -> NavigatorPlace:
        return await asyncio.to_thread(self._place)

    async def is_known(self) -> bool:
        try:
            await self.place()
        except ConfigError:
            return False
        return True

    def _place(self) -> NavigatorPlace:
        if self._beside is not None and not (self._folder / URL).exists() and (address := noted_address(self._beside)):
            return NavigatorPlace(address, (self._beside / "pki" / "ca.crt").read_text())
        return NavigatorPlace(self._text(URL, "write the navigator's url to it"), self._ca())

    async def of(self, workspace_id: str) -> NavigatorAccess:
        return await asyncio.to_thread(self._read, workspace_id)

    def _read(self, workspace_id: str) -> NavigatorAccess:
        url = self._text(URL, "write the navigator's url to it")
        if not is_workspace(workspace_id):
            raise ConfigError(f"workspace {workspace_id!r} cannot be the name of a file")
        make = f"shoal navigator token create --kind viewer --scope workspace={workspace_id}"
        token = self._text(f"{TOKENS}/{workspace_id}", f"write a token of `{make}` to it")
        return NavigatorAccess(url, token, self._ca())

    def _ca(self) -> str:
        ca = self._folder / CA
        return ca.read_text() if ca.exists() else ""

    def _text(self, name: str, fix: str) -> str:
        try:
            text = (self._folder / name).read_text().strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if not text:
            raise ConfigError(f"the file {name} of the control plane's navigator folder is missing or empty: {fix}")
        return text
