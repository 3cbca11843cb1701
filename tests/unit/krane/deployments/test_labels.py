"""Labels, and secrets that are opened."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rendered_states import OWNER

from shoal.krane import labels
from shoal.krane.unsealing import Unsealable, unseal, values_of
from shoal.kube.names import is_label_value
from shoal.sync.sealing import new_key, seal_values, wrap_for
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb


@pytest.mark.parametrize("text", ["a", "env_1", "", "x" * 63])
def test_what_can_be_a_label_stays_as_it_is(text):
    assert labels.label_value(text) == text


@pytest.mark.parametrize("text", ["x" * 64, "a b", "-a", "ä", "a/b", "_"])
def test_what_cannot_be_a_label_is_stood_for_by_one_of_its_own(text):
    made = labels.label_value(text)
    assert not is_label_value(made)
    assert made != labels.label_value(text + "y")


def test_a_version_that_cannot_be_read_is_none():
    def read(text):
        return labels.live_version({"metadata": {"annotations": {"shoal.dev/version": text}}})

    assert read("main:1:7") == Version("main", 1, 7)
    assert read("seven") is None and read("") is None
    assert labels.live_version({"metadata": {}}) is None


def test_objects_of_others_have_no_key_and_are_not_ours():
    assert labels.key_of({"metadata": {}}) is None
    assert labels.key_of({"metadata": {"labels": {labels.COMPONENT: "database", "shoal.dev/deployment": "x"}}}) is None
    assert not labels.is_of({"metadata": {"labels": {labels.MANAGED_BY: "krane"}}}, OWNER)


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
