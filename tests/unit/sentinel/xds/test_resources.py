"""Messages become resources that say what they need, and stay the same while the messages do."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_pb2

from shoal.crds.sentinel import read_route
from shoal.sentinel.model import GatewayRoute, Inputs
from shoal.sentinel.translate.translator import Translator
from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, LISTENER, ROUTES, ResourceRef
from shoal.sentinel.xds.resources import Packager


def inputs(*deployments: str) -> Inputs:
    backends = [{"deployment": one, "namespace": "shop", "service": one} for one in deployments]
    spec = read_route({"environment": "e", "host": "shop.example", "backends": backends})
    return Inputs(routes={"web": GatewayRoute(name="web", environment="e", host="shop.example", spec=spec)})


def test_a_route_needs_every_cluster_that_it_may_lead_to() -> None:
    snapshot = Packager().package(Translator().resources(inputs("d1", "d2")))
    assert {"deployment/d1", "deployment/d2"} <= snapshot[ROUTES]["traffic"].needs
    assert snapshot[ROUTES]["traffic"].needs <= set(snapshot[CLUSTER])


def test_a_listener_brings_its_routes_and_a_cluster_its_endpoints() -> None:
    snapshot = Packager().package(Translator().resources(inputs("d1")))
    assert ResourceRef(ROUTES, "traffic") in snapshot[LISTENER]["traffic"].brings
    assert snapshot[CLUSTER]["deployment/d1"].brings == (ResourceRef(ENDPOINTS, "deployment/d1"),)


def test_mirrors_and_weights_count_as_needed() -> None:
    routes = route_pb2.RouteConfiguration(name="r")
    action = routes.virtual_hosts.add(name="h", domains=["*"]).routes.add().route
    action.weighted_clusters.clusters.add(name="weighted")
    action.request_mirror_policies.add(cluster="mirror")
    snapshot = Packager().package({ROUTES: {"r": routes}})
    assert snapshot[ROUTES]["r"].needs == {"weighted", "mirror"}


def test_equal_content_is_the_same_resource_with_the_same_version() -> None:
    packager = Packager()
    first = packager.package({CLUSTER: {"a": cluster_pb2.Cluster(name="a"), "b": cluster_pb2.Cluster(name="b")}})
    changed = cluster_pb2.Cluster(name="b", alt_stat_name="other")
    second = packager.package({CLUSTER: {"a": cluster_pb2.Cluster(name="a"), "b": changed}})
    assert second[CLUSTER]["a"] is first[CLUSTER]["a"]
    assert second[CLUSTER]["b"].version != first[CLUSTER]["b"].version
    third = Packager().package({CLUSTER: {"b": changed}})
    assert third[CLUSTER]["b"].version == second[CLUSTER]["b"].version


def test_a_type_of_which_nothing_changed_is_not_looked_at() -> None:
    packager = Packager()
    clusters = {"a": cluster_pb2.Cluster(name="a")}
    first = packager.package({CLUSTER: clusters, ENDPOINTS: {}})
    load = endpoint_pb2.ClusterLoadAssignment(cluster_name="a")
    second = packager.package({CLUSTER: clusters, ENDPOINTS: {"a": load}})
    assert second[CLUSTER] is first[CLUSTER]
    assert set(second[ENDPOINTS]) == {"a"}
