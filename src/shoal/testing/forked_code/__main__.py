"""Runs its first argument; the code finds the others behind it in ``sys.argv``."""

from __future__ import annotations

import sys

del sys.argv[0]
exec(sys.argv[0], {"__name__": "__main__"})
