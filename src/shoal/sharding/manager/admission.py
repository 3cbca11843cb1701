"""Assigns slots at admission, by a mutating webhook, so that an object has an owner when it is created.

Every replica answers, leader or not. The webhook adds one label if it is absent, changes nothing else and allows every
request; the sweep finds the objects that it misses. Workers and the sweep label children, since the webhook would have
to read their owner.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson

from shoal.base.asgi import Application, Receive, Scope, Send, answer
from shoal.crds.shard import ConfigSpec, ShardTarget, read_config
from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.reconcile import Cache
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.assigning import SlotChooser
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.manager.observed import ManagerInformers
from shoal.sharding.manager.sweeper import entries_of
from shoal.sharding.model import slot_label
from shoal.sharding.rbac import TargetKind

PATH = "/assign"
_LIMIT_BYTES = 8 * 1024 * 1024


class Assigner:
    """Answers AdmissionReviews."""

    def __init__(
        self,
        sources: ManagerInformers,
        namespaces: Cache,
        chooser: Callable[[ObjectKey], SlotChooser],
        metrics: ShardMetrics,
    ) -> None:
        self._sources = sources
        self._namespaces = namespaces
        self._chooser = chooser
        self._counts = metrics.assignments.labels("webhook")

    def review(self, body: Obj) -> Obj:
        """The review with a response: always allowed, with a patch for missing labels."""
        request = body.get("request") or {}
        answered: Obj = {"uid": request.get("uid", ""), "allowed": True}
        obj = request.get("object")
        if obj and request.get("operation") in ("CREATE", "UPDATE") and not request.get("subResource"):
            patch = self._patch(request, obj)
            if patch:
                answered |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
        return {"apiVersion": body.get("apiVersion", ""), "kind": "AdmissionReview", "response": answered}

    def _patch(self, request: Obj, obj: Obj) -> list[Obj]:
        kind = request.get("kind") or {}
        group, name = kind.get("group", ""), kind.get("kind", "")
        about = obj.get("metadata") or {}
        namespace = request.get("namespace", "")
        present = about.get("labels") or {}
        patch: list[Obj] = []
        for key in self._sources.configs.cache.keys():
            label = slot_label(key.name)
            config = self._sources.configs.cache.get(key)
            if config is None or label in present:
                continue
            spec = read_config(config)
            if self._is_target(spec, group, name, present, namespace):
                named = {"metadata": {**about, "namespace": namespace}}
                entries = partial(entries_of, self._sources, key)
                slot = self._chooser(key).choose(spec, entries, group, name, named)
                patch.append({"op": "add", "path": f"/metadata/labels/{_escaped(label)}", "value": str(slot)})
                self._counts.inc()
        if patch and "labels" not in about:
            patch.insert(0, {"op": "add", "path": "/metadata/labels", "value": {}})
        return patch

    def _is_target(self, spec: ConfigSpec, group: str, kind: str, labels: Obj, namespace: str) -> bool:
        return any(
            target.group == group and target.kind == kind and self._selects(target, labels, namespace)
            for target in spec.targets
        )

    def _selects(self, target: ShardTarget, labels: Obj, namespace: str) -> bool:
        if not from_object(target.selector or {}).matches(labels):
            return False
        if target.namespace_selector is None or not namespace:
            return True
        found = self._namespaces.get(ObjectKey("", namespace))
        there = (found["metadata"].get("labels") or {}) if found is not None else {}
        return found is not None and from_object(target.namespace_selector).matches(there)


def _escaped(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def webhook_app(current: Callable[[], Assigner | None]) -> Application:
    """The webhook as an application; ``current`` returns the assigner, None while the caches are not synced."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != PATH or scope["method"] != "POST":
            await answer(send, 404, b'{"error":"POST an AdmissionReview to /assign"}')
            return
        assigner = current()
        body = await _body(receive)
        if assigner is None or body is None:
            await answer(send, 503 if assigner is None else 413, b"{}")
            return
        try:
            review = orjson.loads(body)
        except ValueError:
            await answer(send, 400, b'{"error":"not JSON"}')
            return
        await answer(send, 200, orjson.dumps(assigner.review(review)))

    return app


async def _body(receive: Receive) -> bytes | None:
    whole = bytearray()
    while True:
        message: Any = await receive()
        if message["type"] != "http.request":
            return None
        whole += message.get("body", b"")
        if len(whole) > _LIMIT_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(whole)


def webhook_configuration(config: str, kinds: Sequence[TargetKind], *, url: str, ca: str) -> Obj:
    """Registers the webhook for objects without a slot, with a short timeout. ``ca`` is PEM."""
    label = slot_label(config)
    rules = [
        {
            "apiGroups": [kind.group],
            "apiVersions": ["*"],
            "resources": [kind.plural],
            "operations": ["CREATE", "UPDATE"],
        }
        for kind in kinds
        if not kind.controlled
    ]
    hook = {
        "name": f"{config}.slots.shard.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"{url}{PATH}", "caBundle": base64.b64encode(ca.encode()).decode()},
        "rules": rules,
        "matchConditions": [
            {
                "name": "without-a-slot",
                "expression": f"!has(object.metadata.labels) || !('{label}' in object.metadata.labels)",
            }
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": f"shard-slots-{config}"},
        "webhooks": [hook],
    }
