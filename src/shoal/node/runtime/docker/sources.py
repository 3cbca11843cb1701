"""The sources of mounts for an engine, which opens them by their paths."""

from __future__ import annotations

import os
from dataclasses import replace

from shoal.node.runtime.model import CreateFailure, Mount
from shoal.node.runtime.process.shim.system import open_beneath


def resolved(mount: Mount) -> Mount:
    """The mount with a source without symbolic links. Raise CreateFailure if they lead out of their volume. A folder
    that a pod replaces after this is not noticed: only a runtime that mounts by itself can do better."""
    if not mount.within:
        return mount
    folder = os.open(mount.within, os.O_PATH | os.O_CLOEXEC)
    try:
        number = open_beneath(folder, os.path.relpath(mount.host_path, mount.within), os.O_PATH)
        try:
            return replace(mount, host_path=os.readlink(f"/proc/self/fd/{number}"), within="")
        finally:
            os.close(number)
    except OSError as error:
        raise CreateFailure(f"opening {mount.host_path}: {error.strerror}") from None
    finally:
        os.close(folder)
