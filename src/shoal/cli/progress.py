"""What people see while a command waits: a line that moves, on a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal's standard error what is waited for; the function changes the text."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console  # takes as long as everything else, and a wait is longer

    with Console(stderr=True).status(text) as shown:
        yield shown.update
