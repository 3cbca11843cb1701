"""Which gateways of other regions one is told of, and the certificate by which it knows them."""

from __future__ import annotations

from shoal.control.service.desired.directory import RegionFacts
from shoal.control.service.desired.gateway_rows import certificates, sentinel_row
from shoal.control.service.desired.queries import StoredCertificate, StoredPeer, StoredSentinel
from shoal.control.service.desired.render import GatewayCandidateRow

REGIONS = {
    "reg_eu": RegionFacts("eu", {"us": 3}, "NodePort"),
    "reg_us": RegionFacts("us", {}),
    "reg_ap": RegionFacts("ap", {}, "", ("203.0.113.7:31043",)),
}


def row(region: str = "reg_eu", environment: str = "env_1") -> StoredSentinel:
    return StoredSentinel("sen_1", "ws_1", "prj_1", environment, "sentinel-x", "i", 2, {}, region, "running")


def test_while_another_version_is_rolled_out_both_are_told() -> None:
    assert sentinel_row(row(), (), REGIONS).candidate is None
    at = {"revision": 3, "image": "", "resources": {"cpu": "1"}, "count": 1, "kept": 1, "promoted": False}
    made = sentinel_row(row()._replace(rollout=at), (), REGIONS)
    assert (made.replicas, made.image, made.candidate) == (
        1, "i", GatewayCandidateRow(
            revision=3, image="shoal/sentinel:latest", resources={"cpu": "1"}, replicas=1, covers=False),
    )  # fmt: skip
    later = sentinel_row(row()._replace(rollout={**at, "promoted": True, "kept": 2}), (), REGIONS)
    assert later.candidate is not None and (later.replicas, later.candidate.covers) == (2, True)


def peer(
    id_: str, region: str, environment: str = "env_1", workspace: str = "ws_1", health: str = "healthy"
) -> StoredPeer:
    return StoredPeer(environment, id_, region, [f"{id_}:8043"], health, workspace)


def told(own: StoredSentinel, *others: StoredPeer) -> dict[str, tuple[list[str], int, bool]]:
    found: dict[str, tuple[list[str], int, bool]] = {}
    for one in sentinel_row(own, others, REGIONS).peers:
        addresses = found.setdefault(one.region, ([], one.distance, one.healthy))[0]
        addresses.append(one.address)
    return found


def test_a_gateway_knows_its_environments_gateways_elsewhere_with_how_far_they_are() -> None:
    found = told(
        row(), peer("here", "reg_eu"), peer("us", "reg_us"), peer("other", "reg_us", environment="env_2"),
        peer("sick", "reg_ap", health="unhealthy"),
    )  # fmt: skip
    assert found == {"us": (["us:8043"], 3, True), "ap": (["203.0.113.7:31043"], 1_000_000, False)}
    assert sentinel_row(row(), (), REGIONS).service == "NodePort"
    assert sentinel_row(row("reg_us"), (), REGIONS).service == "ClusterIP"


def test_where_the_environment_has_none_of_its_own_the_shared_one_is_its_peer() -> None:
    shared = peer("shared", "reg_us", environment="")
    assert told(row(), shared)["us"][0] == ["shared:8043"]
    assert told(row(), shared, peer("own", "reg_us"))["us"][0] == ["own:8043"]
    assert told(row(environment=""), shared, peer("own", "reg_us"))["us"][0] == ["shared:8043"]


def test_gateways_of_other_workspaces_are_strangers() -> None:
    assert told(row(environment=""), peer("theirs", "reg_us", environment="", workspace="ws_2")) == {}


def test_the_newest_certificate_that_is_shown_is_sent_with_everything_that_is_believed() -> None:
    rows = [
        StoredCertificate("ws_1", f"gwc_{revision}", revision, f"ca{revision}".encode(), b"c", b"d", "m", revision < 3)
        for revision in (1, 2, 3)
    ]
    found = certificates(rows)["ws_1"]
    assert (found.id, found.authority) == ("gwc_2", b"ca1ca2ca3")
    made = found.sealed(b"wrapped")
    assert (made.secret.wrapped_key, list(made.secret.variables)) == (b"wrapped", ["tls.crt", "tls.key"])
    assert certificates([]) == {}
