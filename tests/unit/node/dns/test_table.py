"""Names of Services and pods, as Kubernetes' specification of DNS has them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.node.dns import codec
from shoal.node.dns.codec import Answer, name_of
from shoal.node.dns.model import NamedEndpoint, NamedPort, ServiceNames, pack, unpack
from shoal.node.dns.plan import names_of
from shoal.node.dns.table import NameTable

HTTP = NamedPort("http", "TCP", 80)
WEB = ServiceNames(namespace="shop", name="web", addresses=("10.96.0.7",), ports=(HTTP, NamedPort("dns", "UDP", 53)))
ENDS = (NamedEndpoint("10.244.0.2", "db-0", (HTTP,)), NamedEndpoint("10.244.0.3", "", (HTTP,)))
DB = ServiceNames(namespace="shop", name="db", endpoints=ENDS)
OUT = ServiceNames(namespace="shop", name="out", external="www.example.com")
ALIAS = ServiceNames(namespace="shop", name="alias", external="web.shop.svc.cluster.local")


def table(*names: ServiceNames) -> NameTable:
    made = NameTable(reverse=("10.244.0.0/16", "10.96.0.0/16"))
    for each in names or (WEB, DB, OUT, ALIAS):
        made.set(each)
    return made


def asked(name: str, kind: int = codec.A, of: NameTable | None = None) -> Answer:
    found = (of or table()).answer(name_of(name), kind)
    assert found is not None
    return found


def data(name: str, kind: int = codec.A) -> list[Any]:
    return sorted(each.data for each in asked(name, kind).answers)


def test_a_service_has_its_address_and_a_headless_one_those_of_its_pods() -> None:
    assert data("web.shop.svc.cluster.local") == ["10.96.0.7"]
    assert data("WEB.Shop.svc.Cluster.Local.") == ["10.96.0.7"]
    assert data("db.shop.svc.cluster.local") == ["10.244.0.2", "10.244.0.3"]
    assert data("db-0.db.shop.svc.cluster.local") == ["10.244.0.2"]
    assert data("10-244-0-3.db.shop.svc.cluster.local") == ["10.244.0.3"]


def test_a_pod_is_found_by_its_address_in_a_namespace_that_exists() -> None:
    assert data("10-244-0-9.shop.pod.cluster.local") == ["10.244.0.9"]
    for wrong in ("10-244-0-9.nowhere", "10-244-0-999.shop", "10.244.0.9.shop", "web.shop"):
        assert asked(f"{wrong}.pod.cluster.local").rcode == codec.NXDOMAIN


def test_ports_have_srv_records_with_the_addresses_of_their_targets() -> None:
    web = name_of("web.shop.svc.cluster.local")
    found = asked("_http._tcp.web.shop.svc.cluster.local", codec.SRV)
    assert [each.data for each in found.answers] == [(0, 100, 80, web)]
    assert [each.data for each in found.additional] == ["10.96.0.7"]
    targets = [each[3][0] for each in data("_http._tcp.db.shop.svc.cluster.local", codec.SRV)]
    assert sorted(targets) == ["10-244-0-3", "db-0"]
    assert asked("_http._udp.web.shop.svc.cluster.local", codec.SRV).rcode == codec.NXDOMAIN


def test_addresses_lead_back_to_names() -> None:
    assert data("7.0.96.10.in-addr.arpa", codec.PTR) == [name_of("web.shop.svc.cluster.local")]
    assert data("2.0.244.10.in-addr.arpa", codec.PTR) == [name_of("db-0.db.shop.svc.cluster.local")]
    assert asked("9.9.244.10.in-addr.arpa", codec.PTR).rcode == codec.NXDOMAIN
    assert table().answer(name_of("8.8.8.8.in-addr.arpa"), codec.PTR) is None


def test_an_external_name_is_a_cname_and_followed_within_the_cluster() -> None:
    assert data("out.shop.svc.cluster.local") == [("www", "example", "com")]
    assert [each.data for each in asked("alias.shop.svc.cluster.local").answers] == [
        name_of("web.shop.svc.cluster.local"), "10.96.0.7",
    ]  # fmt: skip


def test_external_names_in_a_circle_end() -> None:
    one = ServiceNames(namespace="n", name="a", external="b.n.svc.cluster.local")
    two = ServiceNames(namespace="n", name="b", external="a.n.svc.cluster.local")
    assert len(asked("a.n.svc.cluster.local", of=table(one, two)).answers) <= 8


def test_what_does_not_exist_says_for_how_long_and_what_has_no_such_record_is_not_missing() -> None:
    missing = asked("nothing.shop.svc.cluster.local")
    assert missing.rcode == codec.NXDOMAIN and missing.soa is not None and missing.soa.ttl_s == 5
    other = asked("web.shop.svc.cluster.local", codec.AAAA)
    assert (other.rcode, other.answers, other.soa is None) == (codec.NOERROR, (), False)
    assert asked("shop.svc.cluster.local").rcode == codec.NOERROR
    assert asked("empty.svc.cluster.local").rcode == codec.NXDOMAIN
    assert table().answer(name_of("www.example.com"), codec.A) is None


services = st.builds(
    lambda n, s, addresses, ends: ServiceNames(
        namespace=n, name=s, addresses=tuple(addresses),
        endpoints=() if addresses else tuple(NamedEndpoint(f"10.244.0.{e}", f"h{e}", (HTTP,)) for e in ends),
    ),
    st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]),
    st.lists(st.integers(1, 4).map(lambda n: f"10.96.0.{n}"), max_size=1), st.sets(st.integers(1, 4)),
)  # fmt: skip


@given(st.lists(services, max_size=12), st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=6))
def test_a_table_that_changed_answers_like_a_new_one(before: list[ServiceNames], gone: list[tuple[str, str]]) -> None:
    old, last = NameTable(), {}
    for each in before:
        old.set(each)
        last[each.namespace, each.name] = each
    for key in gone:
        old.remove(key)
        last.pop(key, None)
    new = NameTable()
    for each in last.values():
        new.set(each)
    asks = [f"{s}.{n}.svc.cluster.local" for s in "xyz" for n in "ab"] + ["a.svc.cluster.local", "b.svc.cluster.local"]
    asks += [f"{i}.0.{net}.10.in-addr.arpa" for i in range(5) for net in (96, 244)]
    for name in asks:
        one, two = (each.answer(name_of(name), codec.ANY) for each in (old, new))
        assert (one is None) == (two is None)
        if one and two:
            assert one.rcode == two.rcode and sorted(map(repr, one.answers)) == sorted(map(repr, two.answers))


@given(services)
def test_names_survive_the_way_to_the_server(names: ServiceNames) -> None:
    assert unpack(pack(names)) == names


def test_names_come_from_the_objects_of_the_api() -> None:
    about = {"namespace": "shop", "name": "db"}
    piece = {
        "addressType": "IPv4", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["10.244.0.2"], "hostname": "db-0"},
            {"addresses": ["10.244.0.4"], "conditions": {"ready": False}},
        ],
    }  # fmt: skip
    headless = {"metadata": about, "spec": {"clusterIP": "None"}}
    assert names_of(headless, [piece]).endpoints == (ENDS[0],)
    early = {"metadata": about, "spec": {"clusterIP": "None", "publishNotReadyAddresses": True}}
    assert len(names_of(early, [piece]).endpoints) == 2
    external = {"metadata": about, "spec": {"type": "ExternalName", "externalName": "www.example.com"}}
    assert names_of(external, []).external == "www.example.com"
