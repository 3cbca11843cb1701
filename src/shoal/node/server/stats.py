"""Statistics of a node and its pods: kubelet's summary, and the metrics that metrics servers scrape; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.node.runtime.model import ContainerStats


class Rates:
    """CPU usage between the last two readings."""

    def __init__(self) -> None:
        self._last: dict[str, ContainerStats] = {}
        self._rates: dict[str, int] = {}  # nanocores by container id

    def update(self, stats: Iterable[ContainerStats]) -> None:
        now = {each.container_id: each for each in stats}
        for key, each in now.items():
            before = self._last.get(key)
            if before is not None and each.at > before.at:
                self._rates[key] = int((each.cpu_total_ns - before.cpu_total_ns) / (each.at - before.at))
        self._rates = {key: rate for key, rate in self._rates.items() if key in now}
        self._last = now

    def of(self, container_id: str) -> int:
        return self._rates.get(container_id, 0)


def summary(
    node: str, started_at: float, pods: Iterable[Obj], stats: Iterable[ContainerStats], rates: Rates,
    *, memory_bytes: int, disk: tuple[int, int], now: float,
) -> Obj:  # fmt: skip
    """``/stats/summary``."""
    by_pod: dict[str, list[ContainerStats]] = {}
    for each in stats:
        by_pod.setdefault(each.pod_uid, []).append(each)
    every = [each for group in by_pod.values() for each in group]
    used, total = disk
    stamp = format_time(now)
    memory = sum(each.memory_working_set_bytes for each in every)
    return {
        "node": {
            "nodeName": node,
            "startTime": format_time(started_at),
            "cpu": _cpu(every, rates, stamp),
            "memory": _memory(every, stamp) | {"availableBytes": max(0, memory_bytes - memory)},
            "fs": {"time": stamp, "availableBytes": total - used, "capacityBytes": total, "usedBytes": used},
        },
        "pods": [_pod(pod, by_pod.get(pod["metadata"]["uid"], []), rates, stamp) for pod in pods],
    }


def _pod(pod: Obj, stats: list[ContainerStats], rates: Rates, stamp: str) -> Obj:
    about = pod["metadata"]
    return {
        "podRef": {"name": about["name"], "namespace": about["namespace"], "uid": about["uid"]},
        "startTime": (pod.get("status") or {}).get("startTime"),
        "containers": [
            {
                "name": each.name, "startTime": (pod.get("status") or {}).get("startTime"),
                "cpu": _cpu([each], rates, stamp), "memory": _memory([each], stamp),
                "rootfs": {"time": stamp, "usedBytes": each.disk_used_bytes},
            }
            for each in stats
        ],
        "cpu": _cpu(stats, rates, stamp),
        "memory": _memory(stats, stamp),
        "ephemeral-storage": {"time": stamp, "usedBytes": sum(each.disk_used_bytes for each in stats)},
        "process_stats": {"process_count": sum(each.processes for each in stats)},
    }  # fmt: skip


def _cpu(stats: Iterable[ContainerStats], rates: Rates, stamp: str) -> Obj:
    stats = list(stats)
    return {
        "time": stamp,
        "usageNanoCores": sum(rates.of(each.container_id) for each in stats),
        "usageCoreNanoSeconds": sum(each.cpu_total_ns for each in stats),
    }


def _memory(stats: Iterable[ContainerStats], stamp: str) -> Obj:
    stats = list(stats)
    working = sum(each.memory_working_set_bytes for each in stats)
    return {
        "time": stamp, "usageBytes": working, "workingSetBytes": working,
        "rssBytes": sum(each.memory_rss_bytes for each in stats),
    }  # fmt: skip


_HEAD = """\
# HELP {name} {help}
# TYPE {name} {kind}
"""


def resource_metrics(pods: Mapping[str, Obj], stats: Iterable[ContainerStats], now: float) -> str:
    """``/metrics/resource``, in the form that Prometheus reads. ``pods`` by uid."""
    stats = [each for each in stats if each.pod_uid in pods]
    at = int(now * 1000)
    cpu_s = sum(each.cpu_total_ns for each in stats) / 1e9
    memory = sum(each.memory_working_set_bytes for each in stats)
    lines = [_family("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time of the node in core-seconds")]
    lines.append(f"node_cpu_usage_seconds_total {cpu_s:.9f} {at}\n")
    lines.append(_family("node_memory_working_set_bytes", "gauge", "Working set of the node in bytes"))
    lines.append(f"node_memory_working_set_bytes {memory} {at}\n")
    name = "container_cpu_usage_seconds_total"
    lines.append(_family(name, "counter", "Cumulative cpu time of the container in core-seconds"))
    lines += [f"{name}{_labels(pods, each)} {each.cpu_total_ns / 1e9:.9f} {at}\n" for each in stats]
    name = "container_memory_working_set_bytes"
    lines.append(_family(name, "gauge", "Working set of the container in bytes"))
    lines += [f"{name}{_labels(pods, each)} {each.memory_working_set_bytes} {at}\n" for each in stats]
    return "".join(lines)


def _family(name: str, kind: str, text: str) -> str:
    return _HEAD.format(name=name, kind=kind, help=text)


def _labels(pods: Mapping[str, Obj], stats: ContainerStats) -> str:
    about = pods[stats.pod_uid]["metadata"]
    return f'{{container="{stats.name}",namespace="{about["namespace"]}",pod="{about["name"]}"}}'
