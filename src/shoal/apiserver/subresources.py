"""Subresources with their own logic: scale, binding, eviction, token, finalize, approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from shoal.apiserver import objects
from shoal.apiserver.admission.model import CREATE, UPDATE
from shoal.apiserver.admission.passes import begin_pass
from shoal.apiserver.body import (
    DeleteOptions,
    WriteOptions,
    check_delete_options,
    check_place,
    decode,
    manager_of,
    write_options,
)
from shoal.apiserver.context import Call, Core
from shoal.apiserver.delete import Deleter
from shoal.apiserver.http import Answer, Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.negotiate import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, body_type, patch_type
from shoal.apiserver.nodes.service import SUBRESOURCES as ON_NODES
from shoal.apiserver.nodes.service import NodeAccess
from shoal.apiserver.objects import meta
from shoal.apiserver.patch import Patcher
from shoal.apiserver.registry import Served
from shoal.apiserver.write import ATTEMPTS, Writer
from shoal.apiserver.writing.model import Author, Retry, Write, author_of
from shoal.errors import BadRequest, Conflict, InternalError, MethodNotAllowed, NotFound, TooManyRequests
from shoal.kube import jsonutil, labels
from shoal.kube.decode import normalize
from shoal.kube.kinds import scale
from shoal.kube.objects import Obj
from shoal.kube.patch import json_patch, merge_patch
from shoal.kube.schema import type_of_kind
from shoal.store import Entry

Change = Callable[[Obj], Obj]
IssueToken = Callable[[Call, Obj, Obj], Awaitable[Obj]]  # (call, TokenRequest, ServiceAccount)
_SUCCESS = orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


class Subresources:
    """Dispatches the requests that name a subresource other than ``status``."""

    def __init__(
        self, writer: Writer, patcher: Patcher, deleter: Deleter, nodes: NodeAccess, issue_token: IssueToken | None
    ) -> None:
        self.writer, self.patcher, self.deleter, self.nodes = writer, patcher, deleter, nodes
        self.core: Core = writer.core
        self.issue_token = issue_token  # None where the server has no key to sign with

    async def handle(self, call: Call, method: str) -> Answer:
        name = call.target.subresource
        if name in ON_NODES:
            return await self.nodes.handle(call, method)
        if name == "scale":
            return await self._scale(call, method)
        if method == "POST":
            if name == "binding":
                return await self._bind(call)
            if name == "eviction":
                return await self._evict(call)
            if name == "token":
                return await self._token(call)
        if name in ("ephemeralcontainers", "resize", "approval") and method in ("GET", "PUT", "PATCH"):
            return await self._slice(call, method)
        if name == "finalize" and method == "PUT":
            return await self._finalize(call)
        resource = call.served.resource
        raise MethodNotAllowed(
            "the server does not allow this method on the requested resource",
            details={"group": resource.group, "kind": resource.plural},
        )

    async def _entry(self, call: Call) -> Entry:
        entry = await self.writer.stored(call)
        if entry is None:
            raise self.writer.missing(call)
        return entry

    def body(self, call: Call, group: str, version: str, kind: str) -> Obj:
        """A body that is not an object of the call's own resource."""
        if not call.request.body:
            raise BadRequest("the request has no body")
        obj = decode(call.request.body, body_type(call.request.headers.get(b"content-type")), [], "Ignore")
        if obj.get("kind", kind) != kind:
            raise BadRequest(f"the body must be a {kind}, not a {obj.get('kind')}")
        normalize(obj, type_of_kind(group, version, kind))
        meta(obj)
        return obj

    async def _admitted(self, call: Call, body: Obj, operation: str, gvk: tuple[str, str, str], name: str = "") -> Obj:
        """The body of a subresource with an object of its own, as admission lets it through."""
        served, options = call.served, write_options(call)
        subresource = call.target.subresource
        if not served.resource.stored:  # POST to ``bindings``: what it is about is the pod
            served, subresource = self.core.registry.stored("pods") or served, "binding"
        admission = begin_pass(
            self.writer.admission,
            call,
            served,
            operation,
            subresource=subresource,
            options=options,
            kind=gvk,
            name=name,
        )
        if admission is not None:
            body = await admission.mutate(body)
            await admission.validate(body)
        return body

    async def _slice(self, call: Call, method: str) -> Response:
        """Subresources whose representation is the object itself but that may only change a part of it."""
        if method == "GET":
            return DocumentResponse(200, call.served.render(await self._entry(call)))
        if method == "PUT":
            return await self.writer.update(call)
        return await self.patcher.patch(call)

    async def _finalize(self, call: Call) -> Response:
        """PUT of a namespace that only takes its spec.finalizers."""
        options = write_options(call, "UpdateOptions")
        body = self.body(call, "", "v1", "Namespace")
        check_place(body, call)
        wanted = (body.get("spec") or {}).get("finalizers") or []

        def change(obj: Obj) -> Obj:
            obj["spec"] = {**(obj.get("spec") or {}), "finalizers": wanted}
            return obj

        result = await self.patcher.change(call, change, options)
        return self.writer.answer(call, result, 200)

    # -- scale -----------------------------------------------------------------------------------------------------

    async def _scale(self, call: Call, method: str) -> Response:
        served = call.served
        if method == "GET":
            return DocumentResponse(200, orjson.dumps(self._scale_of(served, served.decode(await self._entry(call)))))
        options = write_options(call, "UpdateOptions" if method == "PUT" else "PatchOptions")
        if method == "PUT":
            wanted = self.body(call, "autoscaling", "v1", "Scale")
            check_place(wanted, call)
            result = await self._set_scale(call, lambda current: wanted, options)
        elif method == "PATCH":
            result = await self._set_scale(call, self._scale_patch(call), options)
        else:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        return DocumentResponse(200, orjson.dumps(result))

    def _scale_of(self, served: Served, obj: Obj) -> Obj:
        if served.crd is not None:
            return served.crd.scale_of(obj)  # type: ignore[no-any-return]
        return scale.scale_of(served.resource.kind, obj)

    def _scale_patch(self, call: Call) -> Change:
        media = patch_type(call.request.headers.get(b"content-type"), strategic=True)
        patch = jsonutil.loads(call.request.body)
        if media == JSON_PATCH:
            return lambda current: json_patch.apply(current, patch)
        if media in (MERGE_PATCH, STRATEGIC_PATCH) or isinstance(patch, dict):
            return lambda current: merge_patch.apply(current, jsonutil.deep_copy(patch))
        raise BadRequest("the patch must be a JSON object")

    async def _set_scale(self, call: Call, change: Change, options: WriteOptions) -> Obj:
        served = call.served
        author = author_of(manager_of(call, options), "scale")
        for _ in range(ATTEMPTS):
            entry = await self._entry(call)
            obj = served.decode(entry)
            before = self._scale_of(served, served.decode(entry))
            wanted = change(before)
            normalize(wanted, type_of_kind("autoscaling", "v1", "Scale"))
            wanted = await self._admitted(call, wanted, UPDATE, ("autoscaling", "v1", "Scale"))
            given = meta(wanted).get("resourceVersion") or ""
            if given and given != str(entry.revision):
                raise self.writer.conflict(call)
            if served.crd is not None:
                served.crd.apply_scale(obj, wanted)
            else:
                scale.apply_scale(obj, wanted)
            try:
                result = await self.writer.store(Write(served, obj, entry, call, options, author))
            except Retry:
                continue
            shown = served.decode(result) if isinstance(result, Entry) else result
            return self._scale_of(served, shown)
        raise self.writer.conflict(call)

    # -- pods ------------------------------------------------------------------------------------------------------

    async def bind_by_name(self, call: Call) -> Response:
        """POST to the ``bindings`` collection: the pod is named in the body."""
        body = self.body(call, "", "v1", "Binding")
        name = body["metadata"].get("name") or ""
        return await self._bind_pod(call, body, name)

    async def _bind(self, call: Call) -> Response:
        body = self.body(call, "", "v1", "Binding")
        check_place(body, call)
        return await self._bind_pod(call, body, call.name)

    async def _bind_pod(self, call: Call, body: Obj, name: str) -> Response:
        node = (body.get("target") or {}).get("name")
        if not node or (body["target"].get("kind") or "Node") != "Node":
            raise BadRequest("target.name must be the name of a Node")
        served = self.core.registry.stored("pods")
        assert served is not None
        options = write_options(call)
        body = await self._admitted(call, body, CREATE, ("", "v1", "Binding"), name)
        annotations = body["metadata"].get("annotations") or {}
        uid = body["metadata"].get("uid")
        author = author_of(manager_of(call, options), "binding")
        for _ in range(ATTEMPTS):
            entry = self.core.store.get(served.key_of(call.namespace, name))
            if entry is None:
                raise NotFound.of("pods", "", name)
            pod = objects.decode(entry)
            self._check_bindable(pod, node, uid)
            pod["spec"]["nodeName"] = node
            if annotations:
                pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **annotations}
            _set_condition(pod, {"type": "PodScheduled", "status": "True"}, self.core.now())
            try:
                await self.writer.store(Write(served, pod, entry, call, options, author))
            except Retry:
                continue
            return DocumentResponse(201, _SUCCESS)
        raise Conflict.of("pods", "", name)

    @staticmethod
    def _check_bindable(pod: Obj, node: str, uid: str | None) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        name = metadata["name"]
        if uid and uid != metadata["uid"]:
            raise Conflict.of(
                "pods", "", name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}",
            )  # fmt: skip
        if metadata.get("deletionTimestamp"):
            raise Conflict.of("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise Conflict.of("pods/binding", "", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise Conflict.of("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")

    async def _evict(self, call: Call) -> Response:
        body = self.body(call, "policy", "v1", "Eviction")
        check_place(body, call)
        body = await self._admitted(call, body, CREATE, ("policy", "v1", "Eviction"))
        options = check_delete_options(body.get("deleteOptions") or {})
        if write_options(call).dry_run:
            options = DeleteOptions(
                options.grace_s, options.propagation, options.orphan, options.uid, options.revision, True
            )
        entry = await self._entry(call)
        pod = objects.decode(entry)
        self.deleter.check_preconditions(call, pod, entry, options)  # a pod that is not deleted costs no budget
        if self._needs_budget(pod):
            await self._spend_budget(call, pod, options)
        if not options.dry_run:
            await self._mark_disrupted(call)
        await self.deleter.delete_object(call, call.name, options)
        return DocumentResponse(201, _SUCCESS)

    @staticmethod
    def _needs_budget(pod: Obj) -> bool:
        status = pod.get("status") or {}
        return not pod["metadata"].get("deletionTimestamp") and status.get("phase") not in (
            "Succeeded", "Failed", "Pending",
        )  # fmt: skip

    async def _spend_budget(self, call: Call, pod: Obj, options: DeleteOptions) -> None:
        """Take one disruption from the budget that covers the pod, or refuse."""
        served = self.core.registry.stored("poddisruptionbudgets.policy")
        assert served is not None
        for _ in range(ATTEMPTS):
            covering = [entry for entry in self._budgets(call) if _covers(objects.decode(entry), pod)]
            if not covering:
                return
            if len(covering) > 1:
                raise InternalError(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                )
            entry = covering[0]
            budget = objects.decode(entry)
            if self._unhealthy_is_free(budget, pod):
                return
            _spend(budget, pod, self.core.now())
            if options.dry_run:
                return
            author = Author("eviction", "status")
            try:
                await self.writer.store(Write.own(served, budget, entry, author))
            except Retry:
                continue
            return
        raise TooManyRequests("the disruption budget changes too fast; try again", retry_after_s=1)

    def _budgets(self, call: Call) -> list[Entry]:
        return list(self.core.store.range("poddisruptionbudgets.policy", call.namespace).entries)

    @staticmethod
    def _unhealthy_is_free(budget: Obj, pod: Obj) -> bool:
        """Pods that are not ready do not need the budget when the policy or spare healthy ones allow it."""
        conditions = (pod.get("status") or {}).get("conditions") or ()
        if any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
            return False
        if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return True
        status = budget.get("status") or {}
        return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)

    async def _mark_disrupted(self, call: Call) -> None:
        served = call.served
        for _ in range(ATTEMPTS):
            entry = await self._entry(call)
            pod = objects.decode(entry)
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            _set_condition(pod, condition, self.core.now())
            try:
                await self.writer.store(Write.own(served, pod, entry, Author("eviction", "status")))
            except Retry:
                continue
            return

    # -- service accounts ------------------------------------------------------------------------------------------

    async def _token(self, call: Call) -> Response:
        request = self.body(call, "authentication.k8s.io", "v1", "TokenRequest")
        account = call.served.decode(await self._entry(call))
        if self.issue_token is None:
            raise InternalError("this server has no signing key for service account tokens")
        request = await self._admitted(call, request, CREATE, ("authentication.k8s.io", "v1", "TokenRequest"))
        return DocumentResponse(201, orjson.dumps(await self.issue_token(call, request, account)))


def _covers(budget: Obj, pod: Obj) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    return labels.from_object(selector).matches(pod["metadata"].get("labels") or {})


def _spend(budget: Obj, pod: Obj, now: str) -> None:
    """Count the eviction in the budget's status; TooManyRequests when it has none to give."""
    name, status = budget["metadata"]["name"], budget.setdefault("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise TooManyRequests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            causes=[
                {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {name} is still being processed by the server.",
                }
            ],
            retry_after_s=10,
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise TooManyRequests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            causes=[
                {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {name} needs {needs} healthy pods and has {has} currently",
                }
            ],
        )
    disrupted = status.setdefault("disruptedPods", {})
    if len(disrupted) > 2000:
        raise TooManyRequests("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
    status["disruptionsAllowed"] -= 1
    disrupted[pod["metadata"]["name"]] = now


def _set_condition(obj: Obj, condition: Obj, now: str) -> None:
    """Set a condition in status, moving its transition time only when its status changes."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    for index, known in enumerate(conditions):
        if known.get("type") == condition["type"]:
            if known.get("status") == condition["status"]:
                conditions[index] = {**known, **condition}
            else:
                conditions[index] = {"lastTransitionTime": now, **condition}
            return
    conditions.append({"lastTransitionTime": now, **condition})
