"""How components reach an API server, each as its own user with that user's rights.

In the server's process they need no credentials. Over a network they use one kubeconfig and impersonate their own
users; if that is forbidden, all of them act as the kubeconfig's user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import cast

from shoal.apiserver.authn.credential import AUTHENTICATED
from shoal.apiserver.handler import Handler
from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import AccessConfig, Client, TransportError
from shoal.client import connect as connected
from shoal.client.http import HttpTransport
from shoal.client.transport import Transport
from shoal.client.watch import SharedDecoder
from shoal.errors import Forbidden, NotFound, ServiceUnavailable, TooManyRequests

Connect = Callable[[str], Client]

log = get_logger("connect")

SIMULATED_NODES = "shoal:simulated-nodes"
SETUP = "shoal:setup"  # installs the RBAC objects of embedded components
NODE, _NODES = "system:node:", "system:nodes"
PROXY = "system:kube-proxy"
_ACCOUNT, _ACCOUNTS = "system:serviceaccount:", "system:serviceaccounts"
_CONTROLLERS = f"{_ACCOUNT}kube-system:"
_MASTERS = "system:masters"
_RETRY_S = 1.0


def groups_of(user: str) -> tuple[str, ...]:
    """The groups of a component's user, besides system:authenticated."""
    if user.startswith(NODE) or user == SIMULATED_NODES:
        return (_NODES,)
    if user.startswith(_ACCOUNT):
        return (_ACCOUNTS, f"{_ACCOUNTS}:{user.removeprefix(_ACCOUNT).partition(':')[0]}")
    return (_MASTERS,) if user == SETUP else ()


def agent_of(user: str) -> str:
    """The User-Agent: the component, whichever account it uses."""
    if user.startswith(_CONTROLLERS):
        return "kube-controller-manager"
    return "kubelet" if user.startswith(NODE) else user.rpartition(":")[2]


def in_process(handler: Handler, clock: Clock) -> Connect:
    """Clients of the server of ``handler``, in its process. They share decoded watch events."""
    decode = SharedDecoder()

    def connect(user: str) -> Client:
        who = User(user, (*groups_of(user), AUTHENTICATED))
        transport = InProcessTransport(handler, who, user_agent=agent_of(user))
        return Client(cast(Transport, transport), clock=clock, field_manager=agent_of(user), decode=decode)

    return connect


async def over_network(
    access: AccessConfig, users: Iterable[str], *, clock: Clock, stack: AsyncExitStack, stop: asyncio.Event
) -> Connect:
    """Clients of another server. Impersonation is used if it is allowed for all ``users``; waits
    until the server answers, or until ``stop``. The transports are closed with ``stack``."""
    refused: Forbidden | None = None
    if not access.headers:  # else the kubeconfig already impersonates a user
        for user in users:
            refused = refused or await _refusal(acting_as(access, user), user, clock, stop)
    if refused is not None:
        log.warning("components use the kubeconfig's user, not each its own", reason=str(refused))

    def connect(user: str) -> Client:
        own = access if refused is not None or access.headers else acting_as(access, user)
        transport = HttpTransport(own, clock=clock, user_agent=agent_of(user))
        stack.push_async_callback(transport.close)
        return Client(transport, clock=clock, field_manager=agent_of(user))

    return connect


def acting_as(access: AccessConfig, user: str) -> AccessConfig:
    """The access with impersonation of ``user``."""
    groups = (("impersonate-group", group) for group in groups_of(user))
    return replace(access, headers=(("impersonate-user", user), *groups))


async def _refusal(access: AccessConfig, user: str, clock: Clock, stop: asyncio.Event) -> Forbidden | None:
    """The error of the server if ``user`` cannot be impersonated or lacks its rights; else None."""
    # every component may read nodes, but a node only its own, and a service account perhaps only the version
    path = "/version" if user.startswith(_ACCOUNT) else "/api/v1/nodes?limit=1"
    if user.startswith(NODE):
        path = f"/api/v1/nodes/{user.removeprefix(NODE)}"
    async with connected(access, clock=clock, user_agent=agent_of(user)) as client:
        while not stop.is_set():
            try:
                await client.request("GET", path)
            except NotFound:
                break  # a node that has not registered yet may ask for itself
            except Forbidden as error:
                return error
            except (TransportError, ServiceUnavailable, TooManyRequests) as error:
                log.warning("the API server does not answer yet", url=access.url, reason=str(error))
                await clock.sleep(_RETRY_S)
            else:
                break
    return None
