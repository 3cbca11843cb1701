"""The subPaths of volumes: made where they are missing, and never outside the volume.

Pods write into volumes, also while this runs, so a path that was checked may lead elsewhere a moment later. Everything
here works on open folders: each step is opened below the volume by the kernel (openat2), and a folder is made in its
parent, which is open.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from shoal.node.errors import ConfigFault
from shoal.node.runtime.process.shim.system import open_beneath

_OUTSIDE = (errno.EXDEV, errno.ELOOP)


def make_subpath(root: Path, part: str) -> None:
    """Make the folders of a subPath that do not exist. It may be a file. Raise ConfigFault if it leads out of the
    volume, also through symbolic links."""
    steps = [step for step in part.split("/") if step not in ("", ".")]
    if part.startswith("/") or ".." in steps:
        raise ConfigFault(f"subPath {part!r} must be a relative path without '..'")
    with ExitStack() as opened:

        def keep(number: int) -> int:
            opened.callback(os.close, number)
            return number

        folder = volume = keep(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            for number, step in enumerate(steps, 1):
                try:
                    folder = keep(open_beneath(volume, "/".join(steps[:number]), os.O_PATH))
                except FileNotFoundError:
                    os.mkdir(step, 0o755, dir_fd=folder)
                    folder = keep(open_beneath(folder, step, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY))
        except OSError as error:
            raise _fault(part, error) from None


def _fault(part: str, error: OSError) -> ConfigFault:
    if error.errno in _OUTSIDE:
        return ConfigFault(f"subPath {part!r} points outside its volume")
    if error.errno == errno.ENOSYS:
        return ConfigFault(f"subPath {part!r} needs Linux 5.6 or newer")
    if error.errno == errno.EEXIST:
        return ConfigFault(f"subPath {part!r} is a symbolic link to nothing")
    return ConfigFault(f"subPath {part!r} cannot be made: {error.strerror}")
