"""The words of ``shoal workspaces set``: quotas as they are typed, and a workspace as it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer


def read_quotas(words: Sequence[str]) -> dict[str, int | None]:
    """``apps=10`` sets a quota, ``apps=default`` takes it back."""
    found: dict[str, int | None] = {}
    for word in words:
        name, _, limit = word.partition("=")
        if limit != "default" and not limit.isdigit():
            raise typer.BadParameter(
                f"{word!r}: use NAME=NUMBER or NAME=default, such as apps=10", param_hint="--quota"
            )
        found[name] = None if limit == "default" else int(limit)
    return found


def quota_rows(quotas: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    return [{"quota": name, "used": each["used"], "limit": each["limit"]} for name, each in quotas.items()]
