"""The key of the control plane's grants, as a file that the navigator reads: it may come, and change, while it runs."""

from __future__ import annotations

from pathlib import Path

from shoal.base import grants
from shoal.base.clock import Clock
from shoal.base.grants import Grant
from shoal.base.logs import get_logger
from shoal.errors import ConfigError

_log = get_logger("navigator")


class GrantFile:
    """Without a file no grant works."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._known: tuple[int, bytes] | None = None  # when the file was written, and its key

    def read(self, text: str, *, however_old: bool = False) -> Grant | None:
        if not grants.is_grant(text):
            return None
        key = self._key()
        return grants.read(key, text, self._clock.wall_s(), however_old=however_old) if key else None

    def _key(self) -> bytes:
        if self._path is None:
            return b""
        try:
            written_ns = self._path.stat().st_mtime_ns
            if self._known is None or self._known[0] != written_ns:
                self._known = written_ns, grants.key_from_text(self._path.read_text())
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            _log.warning("the key of grants cannot be read", path=str(self._path), reason=str(error))
            self._known = None
            return b""
        return self._known[1]
