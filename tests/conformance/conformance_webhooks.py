"""The sample webhook of the conformance tests, served by this process and reached through a service.

Upstream deploys a pod with these handlers. Here the test itself serves them, and a Service with an EndpointSlice leads
to it; where the machine has no address but the loopback one, which endpoints may not have, hooks are named by URL.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conformance_api import Api, unique

from shoal.kube.objects import Obj
from shoal.testing.webhooks import WebhookServer, allowed, denied, patched, webhook_server_thread

ADMISSION = "admissionregistration.k8s.io/v1"
SERVICE, PORT = "e2e-test-webhook", 8443
SLOW_S = 1.2  # longer than the shortest timeout a hook may have


def _pods(review: Obj) -> Any:
    pod = review["object"]
    if pod["metadata"].get("labels", {}).get("webhook-e2e-test") == "wait-forever":
        return _late(60.0)
    faults = []
    if pod["metadata"].get("labels", {}).get("webhook-e2e-test") == "webhook-disallow":
        faults.append("the pod contains unwanted label")
    if any("webhook-disallow" in container["name"] for container in pod["spec"]["containers"]):
        faults.append("the pod contains unwanted container name")
    return denied("; ".join(faults)) if faults else allowed()


async def _late(seconds: float) -> Obj:
    await asyncio.sleep(seconds)  # what is tested is how the server takes the wait
    return allowed()


def _data(review: Obj) -> Obj:
    obj = review["object"] or review["oldObject"]
    return obj.get("data") or {}


def _configmaps(review: Obj) -> Obj:
    unwanted = _data(review).get("webhook-e2e-test") == "webhook-disallow"
    return denied("the configmap contains unwanted key and value") if unwanted else allowed()


def _custom_resource(review: Obj) -> Obj:
    value = _data(review).get("webhook-e2e-test")
    if review["operation"] == "DELETE":
        kept = value == "webhook-nondeletable"
        why = "the custom resource cannot be deleted because it contains unwanted key and value"
        return denied(why) if kept else allowed()
    return denied("the custom resource contains unwanted data") if value == "webhook-disallow" else allowed()


def _stages(review: Obj) -> Obj:
    """Each stage is set when the one before it is there."""
    data = _data(review)
    if data.get("mutation-start") == "yes" and "mutation-stage-1" not in data:
        return patched({"op": "add", "path": "/data/mutation-stage-1", "value": "yes"})
    if data.get("mutation-stage-1") == "yes" and "mutation-stage-2" not in data:
        return patched({"op": "add", "path": "/data/mutation-stage-2", "value": "yes"})
    return allowed()


def _init_container(review: Obj) -> Obj:
    added = {"image": "webhook-added-image", "name": "webhook-added-init-container", "resources": {}}
    return patched({"op": "add", "path": "/spec/initContainers", "value": [added]})


def _definition(review: Obj) -> Obj:
    unwanted = review["object"]["metadata"].get("labels", {}).get("webhook-e2e-test") == "webhook-disallow"
    return denied("the crd contains unwanted label") if unwanted else allowed()


def _attach(review: Obj) -> Obj:
    assert (review["operation"], review["kind"]["kind"]) == ("CONNECT", "PodAttachOptions")
    if review["object"].get("stdin") is not True:
        return allowed()
    return denied(f"attaching to pod '{review['name']}' is not allowed")


def _convert(review: Obj) -> list[Obj]:
    """v1 has ``hostPort``, v2 has ``host`` and ``port``."""
    converted, wanted = [], review["desiredAPIVersion"]
    for obj in review["objects"]:
        changed = {**obj, "apiVersion": wanted}
        if wanted.endswith("/v2"):
            changed["host"], _, changed["port"] = changed.pop("hostPort").partition(":")
        else:
            changed["hostPort"] = f"{changed.pop('host')}:{changed.pop('port')}"
        converted.append(changed)
    return converted


HANDLERS = {
    "/pods": _pods,
    "/pods/attach": _attach,
    "/configmaps": _configmaps,
    "/mutating-configmaps": _stages,
    "/mutating-pods": _init_container,
    "/custom-resource": _custom_resource,
    "/mutating-custom-resource": _stages,
    "/crd": _definition,
    "/always-deny": lambda review: denied("this webhook denies all requests"),
    "/add-label": lambda review: patched({"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}),
    "/always-allow-delay-5s": lambda review: _late(SLOW_S),
    "/crdconvert": _convert,
}


def _own_address() -> str:
    """An address under which this machine reaches itself; no packet is sent to find it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


@dataclass(slots=True)
class SampleWebhook:
    """The running webhook and the namespace of the test it belongs to."""

    api: Api
    namespace: str
    server: WebhookServer

    def client_config(self, path: str, *, trusted: bool = True) -> Obj:
        ca = {"caBundle": self.server.ca_bundle} if trusted else {}
        if ipaddress.ip_address(self.server.host).is_loopback:
            return {"url": self.server.client_config(path)["url"], **ca}
        return {"service": {"namespace": self.namespace, "name": SERVICE, "port": PORT, "path": path}, **ca}

    @property
    def here(self) -> Obj:
        """Selects the namespace of the test."""
        return {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}

    def hook(
        self, name: str, path: str, resource: str, *operations: str, group: str = "", version: str = "v1", **more: Any
    ) -> Obj:
        """One webhook, about this test's namespace only."""
        rule = {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": [resource],
            "operations": list(operations) or ["CREATE"],
        }
        return {
            "name": name,
            "rules": [rule],
            "clientConfig": self.client_config(path),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1", "v1beta1"],
            "namespaceSelector": self.here,
            **more,
        }

    def register(self, kind: str, *hooks: Obj, labels: Obj | None = None) -> str:
        """A configuration with these webhooks; its name."""
        name = unique("e2e-webhook")
        metadata = {"name": name, "labels": labels or {}}
        self.api.of(ADMISSION, f"{kind}webhookconfigurations").create({"metadata": metadata, "webhooks": list(hooks)})
        return name


@contextmanager
def sample_webhook(api: Api, namespace: str) -> Iterator[SampleWebhook]:
    with webhook_server_thread(HANDLERS, host=_own_address(), hosts=[f"{SERVICE}.{namespace}.svc"]) as server:
        api.of("v1", "services", namespace).create(
            {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": PORT, "targetPort": server.port}]}}
        )
        if not ipaddress.ip_address(server.host).is_loopback:
            api.of("discovery.k8s.io/v1", "endpointslices", namespace).create(
                {
                    "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [server.host]}],
                    "ports": [{"name": "", "port": server.port, "protocol": "TCP"}],
                }
            )
        yield SampleWebhook(api, namespace, server)
