"""One object with all addresses: the same for the same pods, and limited in size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.endpoints.plan import plan_endpoints, repack, truncate


def a_service(**spec):
    about = {"name": "web", "namespace": "d", "uid": "s", "labels": {"l": "1"}}
    spec = {
        "clusterIP": "10.0.0.9",
        "selector": {},
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
        **spec,
    }
    return {"metadata": about, "spec": {"ipFamilies": ["IPv4"], **spec}}


def a_pod(number, ready=True, deleted=False, ports=()):
    about = {"name": f"p{number}", "namespace": "d", "uid": f"u{number}"} | (
        {"deletionTimestamp": "x"} if deleted else {}
    )
    ip = f"10.1.{number // 250}.{number % 250}"
    status = {
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "phase": "Running",
    }
    return {
        "metadata": about,
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": list(ports)}]},
        "status": status,
    }


def names(subset, field):
    return [a["targetRef"]["name"] for a in subset.get(field, ())]


def test_ready_and_not_ready_pods_are_apart_and_going_ones_left_out():
    made = plan_endpoints(a_service(), [a_pod(2), a_pod(1), a_pod(3, ready=False), a_pod(4, deleted=True)], None, "t")
    (subset,) = made["subsets"]
    assert (names(subset, "addresses"), names(subset, "notReadyAddresses")) == (["p1", "p2"], ["p3"])
    assert made["metadata"]["labels"] == {"l": "1", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert made["metadata"]["annotations"] == {"endpoints.kubernetes.io/last-change-trigger-time": "t"}


@given(st.permutations([a_pod(n, ready=n % 3 > 0) for n in range(6)]))
@settings(max_examples=50, deadline=None)
def test_the_order_of_pods_does_not_matter_and_nothing_is_written_twice(pods):
    made = plan_endpoints(a_service(), pods, None, "")
    assert made == plan_endpoints(a_service(), list(reversed(pods)), None, "")
    assert plan_endpoints(a_service(), pods, made, "") is None


def test_a_headless_service_is_marked_and_may_have_no_ports():
    made = plan_endpoints(a_service(clusterIP="None", ports=None), [a_pod(1)], None, "")
    assert made["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert "ports" not in made["subsets"][0] and names(made["subsets"][0], "addresses") == ["p1"]


def test_a_pod_without_the_named_port_is_left_out():
    service = a_service(ports=[{"port": 80, "targetPort": "web"}])
    assert "subsets" not in plan_endpoints(service, [a_pod(1)], None, "")


def test_publishing_includes_those_that_are_not_ready_or_are_going():
    made = plan_endpoints(
        a_service(publishNotReadyAddresses=True), [a_pod(1, ready=False), a_pod(2, deleted=True)], None, ""
    )
    assert names(made["subsets"][0], "addresses") == ["p1", "p2"]


def test_more_than_a_thousand_addresses_are_truncated_with_an_annotation():
    made = plan_endpoints(a_service(), [a_pod(n, ready=n < 900) for n in range(1200)], None, "")
    (subset,) = made["subsets"]
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (900, 100)
    assert made["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"] == "truncated"
    fewer = plan_endpoints(a_service(), [a_pod(1)], made, "")
    assert "endpoints.kubernetes.io/over-capacity" not in fewer["metadata"]["annotations"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_what_is_cut_is_shared_and_never_too_much(sizes, limit):
    subsets = [{"addresses": [*range(ready)], "notReadyAddresses": [*range(unready)]} for ready, unready in sizes]
    kept, cut = truncate(subsets, limit)
    ready = sum(len(s.get("addresses", ())) for s in kept)
    unready = sum(len(s.get("notReadyAddresses", ())) for s in kept)
    total = sum(map(sum, sizes))
    assert cut == (total > limit) and ready + unready == min(total, limit)
    assert ready == min(limit, sum(r for r, _ in sizes)), "those that are ready come first"


def test_an_address_with_two_ports_is_in_one_subset():
    one = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "a", "port": 1, "protocol": "TCP"}]}
    two = {
        "addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
        "ports": [{"name": "b", "port": 2, "protocol": "TCP"}],
    }
    found = repack([two, one])
    assert [([a["ip"] for a in s["addresses"]], [p["name"] for p in s["ports"]]) for s in found] == [
        (["10.0.0.1"], ["a", "b"]), (["10.0.0.2"], ["b"])]  # fmt: skip
