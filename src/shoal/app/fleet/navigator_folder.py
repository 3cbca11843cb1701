"""How the control plane reaches the navigator, as files: they may come, change and be mounted while it runs.

FOLDER/url                 https://HOST:PORT
FOLDER/ca.crt              the authority of its certificate; without the file, those of the system
FOLDER/tokens/WORKSPACE    a viewer's token with the scope ``workspace=WORKSPACE``
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.app.home import NAVIGATOR_CA as CA
from shoal.app.home import NAVIGATOR_TOKENS as TOKENS
from shoal.app.home import NAVIGATOR_URL as URL
from shoal.control.api.access import is_workspace
from shoal.control.checks.navigator import NavigatorAccess
from shoal.errors import ConfigError


class NavigatorFolder:
    """Is a ``shoal.control.checks.navigator.NavigatorAccesses``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def of(self, workspace_id: str) -> NavigatorAccess:
        return await asyncio.to_thread(self._read, workspace_id)

    def _read(self, workspace_id: str) -> NavigatorAccess:
        url = self._text(URL, "write the navigator's url to it")
        if not is_workspace(workspace_id):
            raise ConfigError(f"workspace {workspace_id!r} cannot be the name of a file")
        make = f"shoal navigator token create --kind viewer --scope workspace={workspace_id}"
        token = self._text(f"{TOKENS}/{workspace_id}", f"write a token of `{make}` to it")
        ca = self._folder / CA
        return NavigatorAccess(url, token, ca.read_text() if ca.exists() else "")

    def _text(self, name: str, fix: str) -> str:
        try:
            text = (self._folder / name).read_text().strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if not text:
            raise ConfigError(f"the file {name} of the control plane's navigator folder is missing or empty: {fix}")
        return text
