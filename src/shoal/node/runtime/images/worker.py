"""Unpacks a layer, or deletes one, in a process of its own: the request is its standard input, the answer its output.

The process becomes root of the user namespace of the cluster's ids, unless it is root already, and makes the target its
root, so that an archive that got past every check still reaches nothing else.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
from typing import Any

from shoal.node.runtime.images.compression import Refused, load_zstd
from shoal.node.runtime.images.limits import LayerLimits
from shoal.node.runtime.images.unpack import unpack
from shoal.node.runtime.process.shim import system
from shoal.node.runtime.sandbox.helper import files, users


def main() -> None:
    system.die_with_parent()
    request = json.load(sys.stdin)
    os.umask(0)
    try:
        if os.geteuid() != 0:
            users.enter_new(request["uids"], request["gids"], request["mapper"])
            system.die_with_parent()  # other rights have ended that
        answer = _unpack(request) if request["do"] == "unpack" else _remove(request)
    except Refused as refusal:
        answer = {"refused": str(refusal)}
    except OSError as error:
        answer = {"failed": files.error_text(error), "errno": error.errno}
    except MemoryError:
        answer = {"failed": "out of memory", "errno": 0}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def _unpack(request: dict[str, Any]) -> dict[str, Any]:
    libc = ctypes.CDLL(None)  # what is loaded on first use must be loaded before the root changes
    with open(request["blob"], "rb") as packed:
        limits = LayerLimits(**request["limits"])
        load_zstd()
        os.mkdir(request["target"], 0o755)
        folder = os.open(request["target"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.chroot(request["target"])
        os.chdir("/")
        found = unpack(packed, folder, limits, owners=request["owners"])
        if found.diff_id != request["diff_id"]:
            raise Refused(f"the layer's content is {found.diff_id}, the image says {request['diff_id']}")
        if libc.syncfs(folder):
            raise OSError(5, "writing the layer to disk failed")
    return dataclasses.asdict(found)


def _remove(request: dict[str, Any]) -> dict[str, Any]:
    files.remove(request["target"])
    return {}


if __name__ == "__main__":
    main()
