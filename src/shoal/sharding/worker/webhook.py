"""Calls the webhook of a ShardConfig: one POST of JSON per object, on kept connections.

The worker calls from inside the cluster, on behalf of users who may create a ShardConfig. So it connects to no
loopback, link-local, multicast or unspecified address unless its operator allows the network; ``shoal.base.outbound``
does the rest.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from shoal.base.clock import Clock
from shoal.base.destinations import Address, Network, OutboundRefused
from shoal.base.destinations import read_networks as networks_of
from shoal.base.http1.errors import AnswerTooLarge, TransportError
from shoal.base.http1.messages import HttpReply
from shoal.base.outbound import InvalidAuthority, OutboundCall, OutboundCaller
from shoal.crds.shard import HandlerWebhook, seconds
from shoal.errors import ShoalError

_KEPT = 64  # idle connections
_SHOWN = 200  # characters of an answer that a message quotes


class WebhookFailed(ShoalError):
    """The webhook did not take the object; the text says why."""


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return networks_of(texts, "webhook_networks")


class WebhookCaller:
    """``networks`` are those of loopback, link-local and similar addresses that webhooks may have nevertheless."""

    def __init__(self, *, clock: Clock, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._caller = OutboundCaller(clock=clock, agent="shard-worker", kept=_KEPT)

    async def post(self, hook: HandlerWebhook, body: bytes) -> None:
        """Return when the webhook has answered 2xx; else raise ``WebhookFailed``."""
        if len(body) > hook.max_bytes:
            raise WebhookFailed(f"the object has {len(body)} bytes as JSON, more than maxBytes ({hook.max_bytes})")
        reply = await self._called(hook, body)
        if 200 <= reply.status < 300:
            return
        if 300 <= reply.status < 400:
            raise WebhookFailed(f"{hook.url} answered {reply.status}: redirects are not followed; name the final url")
        text = reply.body[: 4 * _SHOWN].decode("utf-8", "replace").strip()[:_SHOWN]
        raise WebhookFailed(f"{hook.url} answered {reply.status}" + (f": {text}" if text else ""))

    def close(self) -> None:
        self._caller.close()

    async def _called(self, hook: HandlerWebhook, body: bytes) -> HttpReply:
        call = OutboundCall(
            url=hook.url, headers=(("content-type", "application/json"),), body=body, ca=_authorities(hook.ca_bundle),
            timeout_s=seconds(hook.timeout), answer_bytes=hook.max_bytes,
        )  # fmt: skip
        try:
            return await self._caller.send(call, self._guard)
        except TimeoutError:
            raise WebhookFailed(f"{hook.url} did not answer within {hook.timeout}") from None
        except AnswerTooLarge:
            raise WebhookFailed(f"the answer of {hook.url} is larger than maxBytes ({hook.max_bytes})") from None
        except TransportError as error:
            raise WebhookFailed(f"{hook.url}: {error}") from error
        except InvalidAuthority as error:
            raise WebhookFailed(f"caBundle is invalid: {error} in base64") from error
        except OutboundRefused as error:
            raise WebhookFailed(str(error)) from error

    def _guard(self, host: str, port: int, address: Address) -> str:
        local = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
        if not local or any(address in network for network in self._networks):
            return ""
        shown = host if host == str(address) else f"{host} ({address})"
        return (
            f"{shown} is a loopback, link-local, multicast or unspecified address: webhooks may have one only in the "
            "worker's --webhook-network"
        )


def _authorities(ca_bundle: str) -> str:
    try:
        return base64.b64decode(ca_bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise WebhookFailed(f"caBundle is invalid: {error}: use PEM certificates in base64") from error
