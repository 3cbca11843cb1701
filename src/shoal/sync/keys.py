"""Keys of objects on a stream, and the stream and place that an object belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

MAX_KEYS_PER_MESSAGE = 5000


class StreamKind(StrEnum):
    DEPLOYMENTS = "deployments"
    SENTINELS = "sentinels"


NAMESPACED = "environment"  # a key of this kind stands for the environment's namespace; it is only ever deleted

STREAM_OF = {
    "deployment": StreamKind.DEPLOYMENTS,
    NAMESPACED: StreamKind.DEPLOYMENTS,
    "sentinel": StreamKind.SENTINELS,
    "route": StreamKind.SENTINELS,
    "policy": StreamKind.SENTINELS,
    "keys": StreamKind.SENTINELS,
}


class Place(NamedTuple):
    """The scope of one agent: a shard of a cluster. A tuple, since it is looked up many times for each change."""

    cluster: str  # id in the control plane, name in an agent
    shard: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.shard}"


def key_of(kind: str, id_: str) -> str:
    """``deployment/dep_…``; the kind must be one that travels."""
    if kind not in STREAM_OF:
        raise ValueError(f"objects of kind {kind!r} are not sent to agents; use one of {', '.join(STREAM_OF)}")
    return f"{kind}/{id_}"


def split_key(key: str) -> tuple[str, str]:
    """Kind and id. Raises ``ValueError`` for an invalid key."""
    kind, slash, id_ = key.partition("/")
    if not slash or not id_ or kind not in STREAM_OF:
        raise ValueError(f"invalid key {key!r}: use KIND/ID with one of {', '.join(STREAM_OF)}")
    return kind, id_


def stream_of(key: str) -> StreamKind:
    return STREAM_OF[split_key(key)[0]]


def chunks(keys: Iterable[str], size: int = MAX_KEYS_PER_MESSAGE) -> Iterator[list[str]]:
    """The keys in lists of at most ``size``."""
    rest = iter(keys)
    while part := list(islice(rest, size)):
        yield part
