"""Functions for building JSON patches in mutations."""

from __future__ import annotations

from shoal.kube.cel.functions import Library


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def declare(library: Library) -> None:
    library.add("jsonpatch_escapeKey_string", "|jsonpatch.escapeKey(string): string", _escape_key)
