"""Use is what lies between two readings."""

from __future__ import annotations

from shoal.apiserver.metrics.samples import NODES, PODS, PRINTER, NodeReading, metrics_object, sample
from shoal.kube.objects import Obj


def a_summary(cpu_ns: int, memory: int, rate: int = 0) -> Obj:
    use = {"cpu": {"usageCoreNanoSeconds": cpu_ns, "usageNanoCores": rate}, "memory": {"workingSetBytes": memory}}
    ref = {"name": "p", "namespace": "a"}
    return {"node": use, "pods": [{"podRef": ref, "containers": [{"name": "c", **use}, {"name": "unmeasured"}]}]}


def test_processor_use_is_the_difference_over_the_time() -> None:
    reading = NodeReading(sample(a_summary(4_000_000_000, 2048), 110.0), sample(a_summary(1_000_000_000, 1), 100.0))
    assert reading.node_usage() == {"cpu": "300m", "memory": "2Ki"}
    assert reading.pod_usage() == {("a", "p"): [{"name": "c", "usage": {"cpu": "300m", "memory": "2Ki"}}]}
    assert reading.stamps(15)["window"] == "10s"


def test_a_single_reading_or_a_counter_that_began_anew_falls_back_to_the_kubelets_own_rate() -> None:
    once = NodeReading(sample(a_summary(1, 0, rate=7), 100.0))
    assert once.node_usage() == {"cpu": "7n", "memory": "0"} and once.stamps(15)["window"] == "15s"
    again = NodeReading(sample(a_summary(5, 0, rate=7), 110.0), sample(a_summary(500, 0), 100.0))
    assert again.node_usage() == {"cpu": "7n", "memory": "0"}


def test_an_empty_summary_gives_no_sample() -> None:
    reading = NodeReading(sample({}, 1.0))
    assert reading.node_usage() is None and reading.pod_usage() == {}


def test_objects_carry_what_they_are_about_and_rows_their_sum() -> None:
    reading = NodeReading(sample(a_summary(4_000_000_000, 2048), 110.0), sample(a_summary(1_000_000_000, 1), 100.0))
    about = {"name": "p", "namespace": "a", "labels": {"x": "y"}}
    containers = [{"name": n, "usage": {"cpu": "1500u", "memory": "1Mi"}} for n in "ab"]
    made = metrics_object(PODS, about, reading, 15, {"containers": containers})
    assert made["kind"] == "PodMetrics" and made["apiVersion"] == "metrics.k8s.io/v1beta1"
    assert made["metadata"] == {
        "name": "p", "namespace": "a", "labels": {"x": "y"}, "creationTimestamp": "1970-01-01T00:01:50Z",
    }  # fmt: skip
    assert made["timestamp"] == "1970-01-01T00:01:50Z"
    assert PRINTER.cells(made, 0.0) == ["p", "3m", "2Mi", "10s"]
    node = metrics_object(NODES, {"name": "n"}, reading, 15, {"usage": {"cpu": "1", "memory": "1Gi"}})
    assert PRINTER.cells(node, 0.0) == ["n", "1", "1Gi", "10s"] and "namespace" not in node["metadata"]
