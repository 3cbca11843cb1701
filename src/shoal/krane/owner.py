"""Who owns the objects that an agent writes, and the error of writing an older version over a newer one.

Apart from ``model``, which needs the messages between agent and control plane: the command line reads and removes an
agent's objects without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import Conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The ownership labels of an agent's objects, which ``live`` selects by."""

    fleet: str
    cluster: str
    region: str
    shard: str


class Newer(Conflict):
    """The object in the cluster is of a newer version than the one to be applied; nothing was changed."""
