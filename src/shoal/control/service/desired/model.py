"""A row of desired state, and the result of loading its key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class DesiredRow(NamedTuple):
    """A row of ``desired`` as agents are told of it; the fields are columns."""

    cluster_id: str
    shard: str
    key: str
    kind: str
    object_id: str
    action: str
    number: int
    by_user: bool | int
    committed_at: int
    trace: str
    correlation: str
    namespace: str
    name: str
    gone_at: int


class Failure(Enum):
    """Why a key was not loaded."""

    LATER = "later"  # the database or the key service is away, or the row read was an old one: try again
    BROKEN = "broken"  # the row can never be shown: skipped, counted, visible


@dataclass(slots=True)  # not frozen: made for every change
class Loaded:
    """The current state of a key, encoded as an event; ``None`` in its place means that there is no such row."""

    number: int
    data: bytes
    committed_ms: int = 0
    trace: str = ""  # of the change
