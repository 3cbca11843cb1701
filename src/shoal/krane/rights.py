"""Errors of missing rights name the command that grants them."""

from __future__ import annotations

import re

GRANT = "shoal krane manifests | kubectl apply -f -"

_MISSING_RIGHT = re.compile(r'User ".*" cannot ')  # not that of a quota or an admission policy, which are 403 too


def with_grant(message: str) -> str:
    """The message of an error; one of a missing right says how an administrator grants it."""
    if GRANT in message or not _MISSING_RIGHT.search(message):
        return message
    return f"{message}; an administrator of the cluster grants it: {GRANT}"
