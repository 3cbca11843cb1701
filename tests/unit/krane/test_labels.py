"""Labels: what makes an object ours, and which version it has."""

from __future__ import annotations

import pytest

from shoal.krane import labels
from shoal.krane.owner import Owner
from shoal.kube.names import is_label_value
from shoal.sync.versions import Version

OWNER = Owner(fleet="flt_1", cluster="c1", region="eu", shard="default")


@pytest.mark.parametrize("text", ["a", "env_1", "", "x" * 63])
def test_what_can_be_a_label_stays_as_it_is(text):
    assert labels.label_value(text) == text


@pytest.mark.parametrize("text", ["x" * 64, "a b", "-a", "ä", "a/b", "_"])
def test_what_cannot_be_a_label_is_replaced_by_a_digest_of_its_own(text):
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
