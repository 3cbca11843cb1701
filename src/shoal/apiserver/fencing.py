"""Fencing: accepts writes of an elected leader only while it holds its Lease.

A leader sends the Lease it holds with every write (``Shoal-Fence: namespace/lease;holder;transitions``); the write is
committed only if the stored Lease still says so, in the same transaction. A deposed leader's late write is therefore
rejected, however late it arrives.
"""

from __future__ import annotations

from shoal.apiserver.http import Request
from shoal.errors import BadRequest, Conflict
from shoal.store import Fence, Key, Require, RequirementFailed

HEADER = b"shoal-fence"
LEASES = "leases.coordination.k8s.io"


def fences(request: Request) -> tuple[Require, ...]:
    """The store condition of a request's fence; empty without a fence."""
    header = request.headers.get(HEADER)
    if header is None:
        return ()
    place, _, rest = header.decode("latin-1").partition(";")
    holder, _, transitions = rest.rpartition(";")
    namespace, _, name = place.strip().partition("/")
    if not (namespace and name and holder and transitions.strip().isdigit()):
        raise BadRequest("invalid Shoal-Fence header: expected namespace/lease;holder;transitions")
    return (Fence(Key(LEASES, namespace, name), f"{holder.strip()}/{int(transitions)}"),)


def deposed(failed: RequirementFailed) -> Conflict | None:
    """The error for a write whose fence failed; None when another condition failed."""
    if not isinstance(failed.require, Fence):
        return None
    key = failed.require.key
    return Conflict(
        f'the write was fenced off: lease "{key.namespace}/{key.name}" is no longer held as {failed.require.fence}',
        details={"name": key.name, "group": "coordination.k8s.io", "kind": "leases"},
    )
