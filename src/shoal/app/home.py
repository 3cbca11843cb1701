"""Where state lives when nobody says otherwise, and the names of files that commands share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shoal.cli.contexts import shoal_home as shoal_home

UP_LOCK = "up.lock"  # held by `shoal up`, with its pid inside
ENDPOINTS = "endpoints.json"  # what `shoal up` runs and where, while it runs


def directory(option: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """What ``--dir`` means: itself when given, else the home; always absolute."""
    return (option.expanduser() if option is not None else shoal_home(environ)).absolute()
