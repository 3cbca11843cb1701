"""The folders of volumes on this machine. Nothing outside the directory is ever changed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path


class Folders:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, volume: str, namespace: str, claim: str) -> Path:
        """The folder of a volume: unique by the generated volume name, and readable."""
        return self._directory / f"{volume}_{namespace}_{claim}"

    async def make(self, path: Path) -> None:
        await asyncio.to_thread(_make, path)

    async def remove(self, path: Path) -> bool:
        """Remove a folder and its content; return False if it is outside the directory."""
        if path.parent != self._directory:
            return False
        return await asyncio.to_thread(_remove, path)


def _remove(path: Path) -> bool:
    if path.is_symlink():
        return False
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)  # pods run as any user
