"""Writes files with secrets or state: atomic, readable by the owner only, synced to disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700


def make_private_dirs(path: Path) -> None:
    """Create ``path`` and the directories above it that are missing, all for their owner only (``mkdir(parents=True)``
    would leave those above open to others). Existing ones are left as they are."""
    if not path.parent.exists():
        make_private_dirs(path.parent)
    path.mkdir(mode=PRIVATE_DIR, exist_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` in one step; only its owner can read it, from the first byte on. Threads and processes may do
    this at the same time: one of them is last."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
