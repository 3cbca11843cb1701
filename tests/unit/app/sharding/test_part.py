"""The shard manager in a cluster's process has the settings of any other."""

from __future__ import annotations

import pytest

from shoal.app.sharding.part import embedded_config
from shoal.errors import ConfigError


def test_the_embedded_manager_takes_part_in_the_election_with_times_from_variables() -> None:
    plain = embedded_config("home-1", {})
    assert (plain.name, plain.elect, plain.lease_s) == ("home-1", True, 15)
    prefix = "SHOAL_SHARD_MANAGER_"
    given = {f"{prefix}LEASE_S": "6", f"{prefix}RENEW_DEADLINE_S": "4", f"{prefix}RETRY_S": "1"}
    election = embedded_config("home-1", given).election()
    assert (election.lease_s, election.renew_deadline_s, election.retry_s) == (6, 4.0, 1.0)
    with pytest.raises(ConfigError, match="renew_deadline_s"):
        embedded_config("home-1", {f"{prefix}LEASE_S": "5"})


def test_webhooks_of_the_embedded_manager_may_have_the_clusters_own_addresses_only() -> None:
    assert embedded_config("home-1", {}).webhook_networks == ("127.0.0.0/8",)
