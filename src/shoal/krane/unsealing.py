"""Sealed secrets to plain values, with the agent's private key. Values are never logged and never written to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.errors import Invalid, invalid
from shoal.sync.sealing import CannotOpen, open_sealed
from shoal.wire.fleet.v1 import cluster_pb as pb

Unseal = Callable[[pb.SealedSecret], dict[str, str]]


class Unsealable(Invalid):
    """A secret cannot be opened with this agent's key: the control plane has to wrap its key for us again."""


def unseal(secret: pb.SealedSecret, private_key: bytes) -> dict[str, str]:
    """Variable → value. ``Unsealable`` names the secret and its variables, and nothing of their values."""
    if not secret.ciphertext:
        raise _deleted(secret)
    try:
        return open_sealed(secret.wrapped_key, secret.ciphertext, private_key)
    except CannotOpen as error:
        raise _unsealable(secret, str(error)) from None


def _unsealable(secret: pb.SealedSecret, reason: str) -> Unsealable:
    named = ", ".join(secret.variables) or "no variables"
    why = f"version {secret.version} ({named}) cannot be opened: {reason}"
    error = Unsealable.of("Secret", "", secret.secret, [invalid("wrappedKey", "(sealed)", why)])
    assert isinstance(error, Unsealable)
    return error


def _deleted(secret: pb.SealedSecret) -> Unsealable:
    why = "it was deleted and the deployment still names it: apply it again, or remove it from the app's spec.secrets"
    error = Unsealable.of("Secret", "", secret.secret, [invalid("secrets", secret.secret, why)])
    assert isinstance(error, Unsealable)
    return error


def values_of(secrets: Iterable[pb.SealedSecret], open_one: Unseal) -> dict[str, str]:
    """All variables of all secrets; where two have the same one, that of the later secret counts."""
    values: dict[str, str] = {}
    for secret in secrets:
        values |= open_one(secret)
    return values
