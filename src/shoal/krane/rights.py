"""Errors of missing rights name the commands that grant them."""

from __future__ import annotations

import re

GRANT = "shoal krane manifests | kubectl apply -f -"
FIX = (
    "an administrator of the cluster grants it: join again with `shoal cluster join` and the same options, or, for an "
    f"agent that was started by itself, {GRANT}"
)

_MISSING_RIGHT = re.compile(r'User ".*" cannot ')  # not that of a quota or an admission policy, which are 403 too


def with_grant(message: str) -> str:
    """The message of an error; one of a missing right says how an administrator grants it."""
    if FIX in message or not _MISSING_RIGHT.search(message):
        return message
    return f"{message}; {FIX}"
