"""A fleet of ``shoal up`` and what a browser complains about, for the tests of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src/shoal/dashboard/static"
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
_LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/ui/#code=(\S+)")
_OURS = re.compile(r"(http://127\.0\.0\.1:\d+/|blob:http://127\.0\.0\.1|about:)")


@dataclass(frozen=True)
class Up:
    """A running ``shoal up``."""

    state: Path

    def shoal(self, *arguments: str, text: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *arguments], env={**os.environ, "SHOAL_HOME": str(self.state)},
            input=text, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def link(self) -> tuple[str, str]:
        """The page's address, and a new code that logs in."""
        found = _LINK.search(self.shoal("open"))
        assert found
        return found[1], found[2]


@contextmanager
def applied(up: Up, text: str) -> Iterator[None]:
    """Objects of a file, for the time of a test."""
    up.shoal("apply", "-f", "-", text=text)
    try:
        yield
    finally:
        up.shoal("delete", "-f", "-", "--yes", text=text, fails=True)


@dataclass
class Watched:
    """What the browser complained about: errors of the console and of scripts, failed requests, requests elsewhere."""

    found: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Parts of the complaints that a test provokes."""

    def watch(self, page: Any) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        page.on("response", self._answered)
        page.on("request", self._asked)

    def _said(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.found.append(f"console: {said.text} {said.location.get('url', '')}")

    def _answered(self, answer: Any) -> None:
        if answer.status >= 400:
            self.found.append(f"request: {answer.status} {answer.url}")

    def _asked(self, asked: Any) -> None:
        if not _OURS.match(asked.url):
            self.found.append(f"request elsewhere: {asked.url}")

    def check(self) -> None:
        bad = [each for each in self.found if not any(part in each for part in self.expected)]
        assert not bad, "\n".join(bad)
