"""Secrets that an agent opens with its own key."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.krane.unsealing import Unsealable, unseal, values_of
from shoal.sync.sealing import new_key, seal_values, wrap_for
from shoal.wire.fleet.v1 import cluster_pb as pb


def sealed_for(private, *, secret="sec_1", **values):
    data_key = new_key()
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return pb.SealedSecret(
        secret=secret, version=1, wrapped_key=wrap_for(data_key, public), ciphertext=seal_values(values, data_key),
        variables=sorted(values),
    )  # fmt: skip


def test_a_secret_is_opened_with_the_key_of_the_agent_alone():
    private, other = bytes(range(32)), bytes(range(1, 33))
    assert unseal(sealed_for(private, A="1"), private) == {"A": "1"}
    with pytest.raises(Unsealable, match="sec_1.*PASSWORD") as refused:
        unseal(sealed_for(other, PASSWORD="hunter2"), private)
    assert "hunter2" not in str(refused.value)


def test_of_two_secrets_with_the_same_variable_the_later_counts():
    private = bytes(range(32))
    both = [sealed_for(private, A="1", B="1"), sealed_for(private, secret="sec_2", A="2")]
    assert values_of(both, lambda one: unseal(one, private)) == {"A": "2", "B": "1"}
