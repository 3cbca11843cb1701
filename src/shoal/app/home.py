"""The default state directory, and the names of files that commands share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shoal.cli.contexts import shoal_home as shoal_home

UP_LOCK = "up.lock"  # held by `shoal up`, with its pid inside
NAVIGATOR = "navigator"  # in the directory of a control plane: how it reaches the navigator
NAVIGATOR_URL, NAVIGATOR_CA, NAVIGATOR_TOKENS = "url", "ca.crt", "tokens"  # the files in it
GRANT_KEY = "grant.key"  # in the directory of a control plane: signs what users of the page ask the navigator
ENDPOINTS = "endpoints.json"  # processes of a running `shoal up` and their addresses


def directory(option: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The value of ``--dir`` if given, else the home; always absolute."""
    return option.expanduser().absolute() if option is not None else shoal_home(environ)
