"""Slices contain exactly the desired endpoints, within their size, with few changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.endpointslice.endpoint import endpoint_of, families_of, ports_of
from shoal.controllers.endpointslice.plan import plan_slices
from shoal.controllers.endpointslice.trigger import TriggerTimes
from shoal.reconcile.keys import ObjectKey

LIMIT = 4


def a_service(uid="svc", labels=None, **spec):
    spec = {
        "clusterIP": "10.0.0.9",
        "selector": {"a": "b"},
        "ports": [{"port": 80, "targetPort": 8080}],
        "ipFamilies": ["IPv4"],
        **spec,
    }
    about = {
        "name": "web",
        "namespace": "d",
        "uid": uid,
        "labels": labels or {},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": about, "spec": spec}


def a_pod(number, ready=True, deleted=False, node="n", phase="Running", ips=None, **spec):
    about = {"name": f"p{number}", "namespace": "d", "uid": f"u{number}", "labels": {"a": "b"}}
    about |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    ips = ips if ips is not None else [f"10.1.0.{number}"]
    conditions = [
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    ]
    status = {
        "phase": phase,
        "podIP": ips[0] if ips else "",
        "podIPs": [{"ip": ip} for ip in ips],
        "conditions": conditions,
    }
    return {"metadata": about, "spec": {"nodeName": node, "containers": [{"name": "c"}], **spec}, "status": status}


class Server:
    """Applies changes as a server would."""

    def __init__(self):
        self.slices, self.made, self.writes = {}, 0, 0

    def apply(self, service, pods, **options):
        plan = plan_slices(
            service, pods, list(self.slices.values()), zone_of=lambda node: "z", trigger="", limit=LIMIT, **options
        )
        changes = plan.changes
        self.writes = len(changes.creates) + len(changes.updates) + len(changes.deletes)
        for piece in changes.deletes:
            del self.slices[piece["metadata"]["name"]]
        for piece in changes.updates:
            name = piece["metadata"]["name"]
            assert piece["addressType"] == self.slices[name]["addressType"]
            self.slices[name] = piece
        for piece in changes.creates:
            self.made += 1
            name = f"{piece['metadata']['generateName']}{self.made}"
            self.slices[name] = {
                **piece,
                "metadata": {**piece["metadata"], "name": name, "uid": name, "resourceVersion": "1"},
            }

    def names(self):
        return [e["targetRef"]["name"] for s in self.slices.values() for e in s["endpoints"]]


pods = st.dictionaries(st.integers(1, 40), st.tuples(st.booleans(), st.booleans()), max_size=30)


@given(st.lists(pods, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_after_each_change_every_pod_is_in_exactly_one_slice_and_nothing_more_is_to_do(states):
    server, service = Server(), a_service()
    for state in states:
        wanted = [a_pod(n, ready, deleted) for n, (ready, deleted) in state.items()]
        server.apply(service, wanted)
        assert sorted(server.names()) == sorted(p["metadata"]["name"] for p in wanted)
        assert all(len(s["endpoints"]) <= LIMIT for s in server.slices.values())
        assert server.slices, "there is always a slice"
        found = {e["targetRef"]["name"]: e for s in server.slices.values() for e in s["endpoints"]}
        for pod in wanted:
            assert found[pod["metadata"]["name"]] == endpoint_of(pod, service, "IPv4", "z")
        server.apply(service, wanted)
        assert server.writes == 0


@given(st.integers(1, 30), st.data())
@settings(max_examples=100, deadline=None)
def test_one_pod_more_or_less_is_one_write(count, data):
    server, service = Server(), a_service()
    everyone = {n: a_pod(n) for n in range(1, count + 1)}
    server.apply(service, list(everyone.values()))
    assert len(server.slices) == -(-count // LIMIT)
    gone = data.draw(st.sampled_from(sorted(everyone)))
    del everyone[gone]
    server.apply(service, list(everyone.values()))
    assert server.writes == 1
    everyone[99] = a_pod(99)
    server.apply(service, list(everyone.values()))
    assert server.writes == 1
    everyone[99] = a_pod(99, ready=False)
    server.apply(service, list(everyone.values()))
    assert server.writes == 1


def test_a_pod_that_takes_the_place_of_another_is_one_write():
    server, service = Server(), a_service()
    server.apply(service, [a_pod(n) for n in range(1, 9)])
    server.apply(service, [a_pod(n) for n in range(2, 10)])
    assert server.writes == 1 and len(server.slices) == 2


def test_a_new_pod_goes_into_the_fullest_slice_that_has_room():
    server, service = Server(), a_service()
    server.apply(service, [a_pod(n) for n in range(1, 9)])
    left = [a_pod(n) for n in (1, 5, 6, 7)]
    server.apply(service, left)
    server.apply(service, [*left, a_pod(9)])
    assert sorted(len(s["endpoints"]) for s in server.slices.values()) == [1, 4]


def test_a_rollout_reuses_the_room_of_pods_that_went():
    server, service = Server(), a_service()
    server.apply(service, [a_pod(n) for n in range(1, 9)])
    server.apply(service, [a_pod(n) for n in range(5, 13)])
    assert len(server.slices) == 2


def test_each_family_has_its_own_slices():
    server = Server()
    both = a_service(ipFamilies=["IPv4", "IPv6"])
    server.apply(both, [a_pod(1, ips=["10.1.0.1", "fd00::0:1"])])
    assert sorted((s["addressType"], s["endpoints"][0]["addresses"][0]) for s in server.slices.values()) == [
        ("IPv4", "10.1.0.1"), ("IPv6", "fd00::1")]  # fmt: skip
    server.apply(a_service(), [a_pod(1, ips=["10.1.0.1", "fd00::1"])])
    assert [s["addressType"] for s in server.slices.values()] == ["IPv4"]
    assert families_of(a_service(ipFamilies=None, clusterIP="fd00::9")) == ("IPv6",)
    assert families_of(a_service(ipFamilies=None, clusterIP="None")) == ("IPv4", "IPv6")


def test_pods_that_have_ended_or_have_no_address_are_not_behind_a_service():
    server = Server()
    server.apply(a_service(), [a_pod(1, phase="Succeeded"), a_pod(2, phase="Failed"), a_pod(3, ips=[])])
    assert server.names() == []


def test_a_pod_whose_node_is_not_known_waits_unless_all_are_published():
    plan = plan_slices(a_service(), [a_pod(1, node="x")], [], zone_of=lambda node: None, trigger="")
    assert plan.lost_nodes == ("x",) and plan.changes.creates[0]["endpoints"] == []
    published = a_service(publishNotReadyAddresses=True)
    plan = plan_slices(published, [a_pod(1, node="x", ready=False)], [], zone_of=lambda node: None, trigger="")
    assert plan.lost_nodes == () and plan.changes.creates[0]["endpoints"][0]["conditions"]["ready"]


def test_slices_of_an_earlier_service_of_the_name_go_and_are_not_reused():
    server = Server()
    server.apply(a_service("old"), [a_pod(1)])
    old = set(server.slices)
    server.apply(a_service("new"), [a_pod(1)])
    assert not old & set(server.slices) and server.names() == ["p1"]


def test_a_service_that_goes_gets_no_new_slices():
    service = a_service()
    service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not plan_slices(service, [a_pod(1)], [], zone_of=lambda node: "", trigger="").changes


def test_close_traffic_has_hints_for_ready_pods():
    near = endpoint_of(a_pod(1), a_service(trafficDistribution="PreferSameNode"), "IPv4", "z1")
    assert near["hints"] == {"forZones": [{"name": "z1"}], "forNodes": [{"name": "n"}]}
    assert endpoint_of(a_pod(1), a_service(trafficDistribution="PreferClose"), "IPv4", "z1")["hints"] == {
        "forZones": [{"name": "z1"}]
    }
    assert "hints" not in endpoint_of(a_pod(1, ready=False), a_service(trafficDistribution="PreferClose"), "IPv4", "z1")


def test_a_host_name_counts_only_in_the_services_own_domain():
    assert endpoint_of(a_pod(1, hostname="h", subdomain="web"), a_service(), "IPv4", "")["hostname"] == "h"
    assert "hostname" not in endpoint_of(a_pod(1, hostname="h", subdomain="other"), a_service(), "IPv4", "")


def test_named_ports_are_looked_up_by_protocol_also_at_sidecars():
    service = a_service(ports=[{"name": "dns", "port": 53, "targetPort": "d", "protocol": "UDP", "appProtocol": "x/y"}])
    tcp, udp = (
        {"name": "d", "containerPort": 1, "protocol": "TCP"},
        {"name": "d", "containerPort": 2, "protocol": "UDP"},
    )
    side = [{"name": "s", "restartPolicy": "Always", "ports": [udp]}]
    assert ports_of(service, a_pod(1, containers=[{"name": "c", "ports": [tcp]}])) == []
    found = ports_of(service, a_pod(1, containers=[{"name": "c", "ports": [tcp]}], initContainers=side))
    assert found == [{"name": "dns", "port": 2, "protocol": "UDP", "appProtocol": "x/y"}]


def test_the_trigger_is_the_oldest_unreported_cause():
    times, key, service = TriggerTimes(), ObjectKey("d", "web"), a_service()

    def pod(number, at):
        made = a_pod(number)
        made["status"]["conditions"][0]["lastTransitionTime"] = f"2026-01-01T00:00:{at:02}Z"
        return made

    assert times.observe(key, service, [pod(1, 5)]) == "2026-01-01T00:00:00Z", "a service that is new"
    assert times.observe(key, service, [pod(1, 5)]) == ""
    assert times.observe(key, service, [pod(1, 9), pod(2, 7)]) == "2026-01-01T00:00:07Z"
    times.forget(key)
    assert times.observe(key, service, [pod(1, 9)]) == "2026-01-01T00:00:00Z"
