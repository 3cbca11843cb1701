"""What indexes and queries know of each object, made from its data.

A summary is frozen and small: 200 000 pods are held in memory by their summaries. Text that repeats (namespaces, nodes,
images, label names) is interned.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every kind has."""

    labels: Mapping[str, str] = {}
    created_at: str = ""


class ContainerSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    image: str
    ready: bool = False
    restarts: int = 0
    state: str = ""  # running, waiting, terminated
    reason: str = ""


class PodSummary(Summary, frozen=True, kw_only=True, gc=False):
    phase: str = ""
    ready: bool = False
    node: str = ""
    ip: str = ""
    owner: str = ""  # "ReplicaSet/web-6f7"
    service_account: str = ""
    containers: tuple[ContainerSummary, ...] = ()
    proxy: str = "none"  # none, sidecar, router, ztunnel
    deleting: bool = False


class PortSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    port: int
    protocol: str = "TCP"
    target: str = ""
    app_protocol: str = ""


class ServiceSummary(Summary, frozen=True, kw_only=True, gc=False):
    type: str = ""
    cluster_ip: str = ""
    external_ips: tuple[str, ...] = ()
    external_name: str = ""
    selector: Mapping[str, str] = {}
    ports: tuple[PortSummary, ...] = ()


class EndpointSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    address: str
    pod: str = ""
    node: str = ""
    zone: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False


class SliceSummary(Summary, frozen=True, kw_only=True, gc=False):
    service: str = ""
    ports: tuple[PortSummary, ...] = ()
    endpoints: tuple[EndpointSummary, ...] = ()


class NodeSummary(Summary, frozen=True, kw_only=True, gc=False):
    ready: bool = False
    unschedulable: bool = False
    version: str = ""
    address: str = ""
    zone: str = ""


class DeploymentSummary(Summary, frozen=True, kw_only=True, gc=False):
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    images: tuple[str, ...] = ()


class IstioSummary(Summary, frozen=True, kw_only=True, gc=False):
    """Enough to find it; the analysis reads the object."""

    hosts: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    selector: Mapping[str, str] = {}
