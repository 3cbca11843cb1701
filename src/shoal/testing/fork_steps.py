"""What tests let a fork server call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def write_pid(path: str, words: Sequence[str]) -> None:
    Path(path).write_text(" ".join((str(os.getpid()), *words)))
