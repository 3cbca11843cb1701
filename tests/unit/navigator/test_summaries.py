"""Summaries of objects: every kind's fields, Istio's proxies, and data of the wrong shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.model import KINDS
from shoal.navigator.summaries import (
    ContainerSummary,
    DeploymentSummary,
    EndpointSummary,
    EventSummary,
    IstioSummary,
    NodeSummary,
    PodSummary,
    PortSummary,
    ServiceSummary,
    SliceSummary,
    proxy_of,
    summarize,
)
from shoal.navigator.summary_base import Summary

CREATED = "2026-01-02T03:04:05Z"
SEEN = "2026-01-02T04:00:00Z"


def a_pod(
    *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": "web-1", "namespace": "shop", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "web", "image": "web:v2"}], **spec}}


def a_proxy(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"name": "istio-proxy", "image": "istio/proxyv2:1.24.0", "args": list(arguments), **more}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "Warning", "reason": "BackOff", "message": "x" * 1000, "count": 7, "lastTimestamp": SEEN,
         "involvedObject": {"kind": "Pod", "name": "web-1", "namespace": "shop"}, "source": {"component": "kubelet"}},
        {"type": "Warning", "reason": "BackOff", "note": "x" * 1000, "reportingComponent": "kubelet",
         "regarding": {"kind": "Pod", "name": "web-1", "namespace": "shop"},
         "series": {"count": 7, "lastObservedTime": SEEN}, "eventTime": CREATED},
    ],
)  # fmt: skip
def test_the_summary_of_an_event_is_the_same_for_both_apis_and_its_message_is_bounded(event: dict[str, Any]) -> None:
    metadata = {"name": "web-1.17a", "namespace": "shop", "creationTimestamp": CREATED}
    assert summarize("events", {"metadata": metadata, **event}) == EventSummary(
        created_at=CREATED, type="Warning", reason="BackOff", message="x" * 256, object="Pod/web-1",
        object_namespace="shop", count=7, seen_at=SEEN, source="kubelet",
    )  # fmt: skip


def test_the_summary_of_a_pod_has_its_queryable_fields() -> None:
    pod = {
        "metadata": {
            "name": "web-6f7-x", "namespace": "shop", "creationTimestamp": CREATED, "labels": {"app": "web"},
            "ownerReferences": [{"kind": "Other", "name": "o"},
                                {"kind": "ReplicaSet", "name": "web-6f7", "controller": True}],
            "deletionTimestamp": CREATED,
        },
        "spec": {
            "nodeName": "n1", "serviceAccountName": "web",
            "containers": [{"name": "web", "image": "web:v2"}, {"name": "log", "image": "log:1"}],
            "initContainers": [{"name": "wait", "image": "wait:1"},
                               {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.7",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "log", "ready": False, "restartCount": 3,
                 "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                {"name": "web", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": CREATED}}},
            ],
            "initContainerStatuses": [{"name": "mesh", "ready": True, "restartCount": 1, "state": {"running": {}}}],
        },
    }  # fmt: skip
    assert summarize("pods", pod) == PodSummary(
        labels={"app": "web"},
        created_at=CREATED,
        phase="Running",
        ready=True,
        node="n1",
        ip="10.0.0.7",
        owner="ReplicaSet/web-6f7",
        service_account="web",
        containers=(
            ContainerSummary(name="web", image="web:v2", ready=True, state="running"),
            ContainerSummary(name="log", image="log:1", restarts=3, state="waiting", reason="CrashLoopBackOff"),
            ContainerSummary(name="mesh", image="mesh:1", ready=True, restarts=1, state="running"),
        ),
        proxy="none",
        deleting=True,
    )


def test_a_pod_that_no_node_takes_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = a_pod() | {"status": {"phase": "Pending", "conditions": [condition]}}
    summary = summarize("pods", pod)
    assert isinstance(summary, PodSummary)
    assert (summary.phase, summary.reason, summary.ready) == ("Pending", "Unschedulable", False)


@pytest.mark.parametrize(
    ("pod", "proxy"),
    [
        (a_pod(), "none"),
        # What the injector writes, with and without native sidecars, with and without arguments.
        (a_pod(containers=[{"name": "web"}, a_proxy("proxy", "sidecar", "--domain", "x")]), "sidecar"),
        (a_pod(initContainers=[a_proxy("proxy", "sidecar", restartPolicy="Always")]), "sidecar"),
        (a_pod(containers=[{"name": "web"}, a_proxy()]), "sidecar"),
        (a_pod(annotations={"sidecar.istio.io/status": "{}"}), "sidecar"),
        # istio-init prepares and ends; it is no proxy.
        (a_pod(initContainers=[{"name": "istio-init", "args": ["istio-iptables"]}]), "none"),
        (a_pod(initContainers=[a_proxy("proxy", "sidecar")]), "none"),
        # Gateways by arguments, by the Gateway API's label, by the injector's template, by the old charts' label.
        (a_pod(containers=[a_proxy("proxy", "router")]), "router"),
        (a_pod(containers=[a_proxy()], labels={"gateway.networking.k8s.io/gateway-name": "edge"}), "router"),
        (a_pod(containers=[a_proxy()], annotations={"inject.istio.io/templates": "gateway"}), "router"),
        (a_pod(containers=[a_proxy()], annotations={"inject.istio.io/templates": "sidecar,gateway"}), "router"),
        (a_pod(containers=[a_proxy()], labels={"istio": "ingressgateway"}), "router"),
        (a_pod(containers=[a_proxy()], labels={"istio": "egressgateway"}), "router"),
        (a_pod(containers=[a_proxy("proxy", "waypoint")]), "router"),
        (a_pod(containers=[a_proxy()], labels={"gateway.istio.io/managed": "istio.io-mesh-controller"}), "router"),
        # What it was started as decides against labels.
        (a_pod(containers=[a_proxy("proxy", "sidecar")], labels={"istio": "ingressgateway"}), "sidecar"),
        # Ambient: the pod whose traffic the node's ztunnel takes, and ztunnel itself.
        (a_pod(annotations={"ambient.istio.io/redirection": "enabled"}), "ztunnel"),
        (a_pod(annotations={"ambient.istio.io/redirection": "disabled"}), "none"),
        (a_pod(containers=[a_proxy("proxy", "ztunnel")], labels={"app": "ztunnel"}), "ztunnel"),
        (a_pod(containers=[a_proxy()], labels={"app": "ztunnel"}), "ztunnel"),
        # A name or an image that sounds like one does not make a proxy, nor does a label without a container.
        (a_pod(containers=[{"name": "kube-proxy", "image": "kube-proxy:1"}]), "none"),
        (a_pod(containers=[{"name": "envoy", "image": "envoyproxy/envoy:v1.31"}]), "none"),
        (a_pod(labels={"istio": "ingressgateway"}), "none"),
    ],
)  # fmt: skip
def test_the_proxy_of_a_pod_is_found_by_the_marks_of_istio(pod: dict[str, Any], proxy: str) -> None:
    assert proxy_of(pod) == proxy
    summary = summarize("pods", pod)
    assert isinstance(summary, PodSummary)
    assert summary.proxy == proxy


def test_a_service_has_its_addresses_selector_and_ports() -> None:
    service = {
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": CREATED},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "externalIPs": ["1.2.3.4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "appProtocol": "http2"}, {"port": 53,
                      "protocol": "UDP", "targetPort": 5353}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}, {"hostname": "lb.example"}]}},
    }  # fmt: skip
    assert summarize("services", service) == ServiceSummary(
        created_at=CREATED,
        type="LoadBalancer",
        cluster_ip="10.96.0.9",
        external_ips=("1.2.3.4", "5.6.7.8", "lb.example"),
        selector={"app": "web"},
        ports=(
            PortSummary(name="http", port=80, target="web", app_protocol="http2"),
            PortSummary(name="", port=53, protocol="UDP", target="5353"),
        ),
    )


def test_a_slice_keeps_its_endpoints_that_are_not_ready() -> None:
    slice_ = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.9"], "nodeName": "n1", "zone": "a",
             "targetRef": {"kind": "Pod", "name": "web-1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": False, "serving": True, "terminating": True}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": False}, "targetRef": {"kind": "Node", "name": "n1"}},
        ],
    }  # fmt: skip
    summary = summarize("endpointslices", slice_)
    assert isinstance(summary, SliceSummary)
    assert summary.service == "web"
    assert summary.endpoints == (
        EndpointSummary(address="10.0.0.1", pod="web-1", node="n1", zone="a"),
        EndpointSummary(address="10.0.0.2", ready=False, serving=True, terminating=True),
        EndpointSummary(address="10.0.0.3", ready=False, serving=False),
    )


def test_the_capacity_of_a_node_is_in_cores_and_gibibytes() -> None:
    status = {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "3920m", "memory": "15872Mi", "pods": "100"},
    }
    found = summarize("nodes", {"metadata": {"name": "n1"}, "status": status})
    assert isinstance(found, NodeSummary)
    assert (found.cpu, found.memory, found.pods) == (4.0, 16.0, 110)
    assert (found.allocatable_cpu, found.allocatable_memory, found.allocatable_pods) == (3.92, 15.5, 100)
    assert summarize("nodes", {"metadata": {"name": "n1"}}) == NodeSummary(), "a new node has not reported any"
    odd = summarize("nodes", {"metadata": {"name": "n1"}, "status": {**status, "capacity": {"cpu": "many"}}})
    assert isinstance(odd, NodeSummary) and odd.cpu == 0.0


def test_nodes_and_deployments_have_their_queryable_fields() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.1.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.34.0"},
        },
    }
    assert summarize("nodes", node) == NodeSummary(
        labels={"topology.kubernetes.io/zone": "a"},
        ready=True,
        unschedulable=True,
        version="v1.34.0",
        address="10.1.0.1",
        zone="a",
    )
    deployment = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:v2"}]}}},
        "status": {"readyReplicas": 1, "updatedReplicas": 1},
    }
    assert summarize("deployments", deployment) == DeploymentSummary(replicas=1, ready=1, updated=1, images=("web:v2",))


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("virtualservices", {"hosts": ["web"], "gateways": ["mesh", "shop/edge"]},
         IstioSummary(hosts=("web",), gateways=("mesh", "shop/edge"))),
        ("destinationrules", {"host": "web", "workloadSelector": {"matchLabels": {"app": "a"}}},
         IstioSummary(hosts=("web",), selector={"app": "a"})),
        ("gateways", {"selector": {"istio": "ingressgateway"}, "servers": [{"hosts": ["a", "b"]}, {"hosts": ["b"]}]},
         IstioSummary(hosts=("a", "b"), selector={"istio": "ingressgateway"})),
        ("serviceentries", {"hosts": ["x.example"], "workloadSelector": {"labels": {"app": "a"}}},
         IstioSummary(hosts=("x.example",), selector={"app": "a"})),
        ("sidecars", {"egress": [{"hosts": ["./*"]}], "workloadSelector": {"labels": {"app": "a"}}},
         IstioSummary(hosts=("./*",), selector={"app": "a"})),
        ("envoyfilters", {"workloadSelector": {"labels": {"app": "a"}}}, IstioSummary(selector={"app": "a"})),
        ("peerauthentications", {"selector": {"matchLabels": {"app": "a"}}}, IstioSummary(selector={"app": "a"})),
        ("authorizationpolicies", {}, IstioSummary()),
    ],
)  # fmt: skip
def test_istio_objects_are_found_by_hosts_gateways_and_selectors(
    kind: str, spec: dict[str, Any], expected: IstioSummary
) -> None:
    assert summarize(kind, {"metadata": {"name": "x", "namespace": "shop"}, "spec": spec}) == expected


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("virtualservices", {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"hosts": "web"}}),
        ("destinationrules", {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}}),
        ("gateways", {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"servers": ["s"]}}),
        ("envoyfilters", {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"workloadSelector": [1]}}),
    ],
)
def test_an_object_of_the_wrong_shape_is_still_found_by_its_labels(kind: str, obj: dict[str, Any]) -> None:
    assert summarize(kind, obj) == IstioSummary(labels={"a": "b"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["containers", "initContainers", "ports", "selector", "endpoints", "conditions", "hosts", "host", "servers", "spec",
     "status", "labels", "template", "containerStatuses", "state", "name", "type"]
)  # fmt: skip
SHAPES = st.recursive(JSON, lambda inner: st.dictionaries(FIELDS, inner | st.lists(inner), max_size=4), max_leaves=10)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from([*KINDS, "unheardof"]), metadata=SHAPES, spec=SHAPES, status=SHAPES)
def test_no_object_makes_summarize_fail(kind: str, metadata: Any, spec: Any, status: Any) -> None:
    assert isinstance(summarize(kind, {"metadata": metadata, "spec": spec, "status": status}), Summary)


def test_pods_of_one_template_share_their_labels_and_containers() -> None:
    first, second = (summarize("pods", a_pod(labels={"app": "web", "version": "".join(["v", "2"])})) for _ in range(2))
    assert isinstance(first, PodSummary) and isinstance(second, PodSummary)
    assert first.labels is second.labels
    assert first.containers is second.containers
