"""Reports when shims exit, and reaps those that are children of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Watches:
    """A pidfd per container. A shim without one is found by the runtime's periodic check."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._files: dict[str, int] = {}  # pidfd of the shim, by container
        self._children: set[int] = set()

    def __contains__(self, container_id: str) -> bool:
        return container_id in self._files

    def add(self, container_id: str, pid: int, *, child: bool) -> None:
        if child:
            self._children.add(pid)
        try:
            file = os.pidfd_open(pid)
        except OSError:
            return
        self._files[container_id] = file
        asyncio.get_running_loop().add_reader(file, self._readable, container_id, pid)

    def _readable(self, container_id: str, pid: int) -> None:
        self._drop(container_id)
        self._reap_child(pid)
        self._ended(container_id)

    def _drop(self, container_id: str) -> None:
        file = self._files.pop(container_id)
        asyncio.get_running_loop().remove_reader(file)
        os.close(file)

    def _reap_child(self, pid: int) -> None:
        try:
            gone = os.waitpid(pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # started by an earlier run, so not a child of this process
            gone = True
        if gone:
            self._children.discard(pid)

    def reap(self) -> None:
        """Reap children whose exit was not reported."""
        for pid in tuple(self._children):
            self._reap_child(pid)

    def close(self) -> None:
        for container_id in tuple(self._files):
            self._drop(container_id)
        self.reap()
