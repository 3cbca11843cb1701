"""What the steps of a write share: under whose name it is recorded, and that it has to start again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Author:
    """Under whose name fields are recorded, and where the write came in."""

    manager: str
    subresource: str = ""


class Retry(Exception):
    """Something this write relied on changed under it; start again from what is stored now."""
