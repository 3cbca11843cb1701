"""Controllers that use their own accounts, so that missing permissions fail here as in a cluster."""

from __future__ import annotations

from dataclasses import replace

from shoal.client import Client


class _Acting:
    """A transport that makes its requests as another user."""

    def __init__(self, inner, account):
        self._inner = inner
        self._headers = {"impersonate-user": f"system:serviceaccount:kube-system:{account}"}

    async def request(self, method, target, *, headers=None, body=b""):
        return await self._inner.request(method, target, headers={**(headers or {}), **self._headers}, body=body)

    async def stream(self, method, target, *, headers=None, body=b""):
        return await self._inner.stream(method, target, headers={**(headers or {}), **self._headers}, body=body)

    async def close(self):
        pass


def acting_as(server, account, add):
    """``add`` with a context whose own writes and reads are those of the account."""

    def wire(context):
        client = Client(_Acting(server.transport, account), clock=context.clock, field_manager=account)
        add(replace(context, own=client))

    return wire
