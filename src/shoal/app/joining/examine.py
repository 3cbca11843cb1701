"""Whether a cluster can be joined: version, APIs, the caller's rights, admission, EndpointSlices and the clock.

Everything is asked of the API server; nothing is changed there. Requests to create something are dry runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from shoal.app.findings import Finding, FindingVerdict
from shoal.app.joining.manifests import NAMESPACE
from shoal.base.clock import Clock
from shoal.client import Client, ResourceType, Scope, TransportError, builtin
from shoal.errors import ApiError, Forbidden, NotFound, Unauthorized
from shoal.kube.objects import Obj

OLDEST, TRIED = (1, 27), (1, 31)  # has all APIs that are used; the oldest that releases are tried with
_WARN_S, _FAIL_S = 5.0, 60.0
_REVIEWS = builtin("selfsubjectaccessreviews", "authorization.k8s.io")
_SLICES = builtin("endpointslices", "discovery.k8s.io")
_NAMESPACES, _PODS, _CONFIG_MAPS = builtin("namespaces"), builtin("pods"), builtin("configmaps")
_ALSO_USED = (  # by the agents, beside what the manifests have
    builtin("horizontalpodautoscalers", "autoscaling"),
    builtin("leases", "coordination.k8s.io"),
    builtin("services"),
    _PODS,
    _SLICES,
    builtin("customresourcedefinitions", "apiextensions.k8s.io"),
)
_PROBE = "shoal-doctor"


class ClusterExamination:
    """``objects`` are the manifests that would be applied. ``source`` is the kubeconfig, for messages."""

    def __init__(
        self, client: Client, objects: Sequence[Obj], *, clock: Clock, source: str, namespaces: Iterable[str] = ()
    ) -> None:
        self._client = client
        self._objects = objects
        self._clock = clock
        self._source = source
        self._namespaces = tuple(namespaces)
        self._types: dict[tuple[str, str], ResourceType] = {}  # by kind and apiVersion

    async def findings(self) -> AsyncIterator[Finding]:
        """One check after the other; ends after a check without which the next ones mean nothing."""
        try:
            version = await self._client.request("GET", "/version")
        except (TransportError, ApiError) as error:
            yield self._unreachable(error)
            return
        yield version_finding(version)
        yield await self._clock_finding()
        try:
            types = await self._client.resource_types()
        except (TransportError, ApiError) as error:
            yield self._unreachable(error)
            return
        yield self._apis(types)
        yield await self._rights()
        for namespace in self._namespaces:
            if (missing := await self._namespace(namespace)) is not None:
                yield missing
        yield await self._admission()
        yield await self._endpoint_slices()

    def _unreachable(self, error: Exception) -> Finding:
        if isinstance(error, Unauthorized):
            fix = f"the credentials in {self._source} are not valid (any more): get new ones"
        elif "not trusted" in str(error):
            fix = f"set certificate-authority-data in {self._source} to the CA of the API server"
        else:
            fix = (
                f"check the address in {self._source}, the network and HTTPS_PROXY: "
                f"kubectl --kubeconfig {self._source} version"
            )
        return Finding("connection", FindingVerdict.FAILED, str(error), fix)

    # clock

    async def _clock_finding(self) -> Finding:
        server = await self._server_time()
        if server is None:
            return Finding("clock", FindingVerdict.WARNING, "the server's time is not known")
        off_s = abs(self._clock.wall_s() - server.timestamp())
        found = f"{off_s:.0f} s apart from this machine"
        fix = "synchronize the clocks of this machine and of the cluster's nodes (NTP)"
        if off_s >= _FAIL_S:
            return Finding("clock", FindingVerdict.FAILED, found, fix)
        return (
            Finding("clock", FindingVerdict.WARNING, found, fix)
            if off_s >= _WARN_S
            else Finding("clock", FindingVerdict.OK, found)
        )

    async def _server_time(self) -> datetime | None:
        """From the header Date, which some servers do not send, else from an object that is not stored."""
        with suppress(TransportError, ApiError):
            reply = await self._client.send("GET", "/version")
            with suppress(ValueError, TypeError):
                return parsedate_to_datetime(reply.headers["date"]) if "date" in reply.headers else await self._stamp()
        return None

    async def _stamp(self) -> datetime:
        probe: Obj = {"metadata": {"generateName": f"{_PROBE}-", "namespace": "default"}}
        made = await self._client.of(_CONFIG_MAPS).create(probe, dry_run=True)
        text = str(made["metadata"]["creationTimestamp"])
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)

    # what the server has

    def _apis(self, types: Iterable[ResourceType]) -> Finding:
        self._types = {(each.kind, each.api_version): each for each in types if each.kind}
        served = {(each.plural, each.api_version) for each in types}
        own = {each["spec"]["names"]["kind"] for each in self._objects if each["kind"] == "CustomResourceDefinition"}
        missing = {
            f"{each['apiVersion']} {each['kind']}"
            for each in self._objects
            if (each["kind"], each["apiVersion"]) not in self._types and each["kind"] not in own
        } | {f"{each.api_version} {each.kind}" for each in _ALSO_USED if (each.plural, each.api_version) not in served}
        if missing:
            fix = f"use Kubernetes {OLDEST[0]}.{OLDEST[1]} or newer with these APIs enabled"
            return Finding("apis", FindingVerdict.FAILED, f"not served: {', '.join(sorted(missing))}", fix)
        return Finding("apis", FindingVerdict.OK, f"{len(served)} resources, none missing")

    async def _endpoint_slices(self) -> Finding:
        scope = Scope(namespace="default", label_selector="kubernetes.io/service-name=kubernetes")
        fix = "gateways find their backends in EndpointSlices: enable the endpointslice controller"
        try:
            found = await self._client.of(_SLICES).list(scope)
        except (TransportError, ApiError) as error:
            return Finding("endpointslices", FindingVerdict.WARNING, str(error), fix)
        if not found.items:
            return Finding("endpointslices", FindingVerdict.WARNING, "none for the Service default/kubernetes", fix)
        return Finding("endpointslices", FindingVerdict.OK, "served")

    # rights

    async def _rights(self) -> Finding:
        """Of the caller: may it apply every kind, and grant what the roles grant?"""
        wanted = {
            (kind, each["metadata"].get("namespace", ""))
            for each in self._objects
            if (kind := self._types.get((each["kind"], each["apiVersion"]))) is not None
        }
        denied: dict[tuple[str, str], list[str]] = {}  # namespaces by verbs and kind
        for kind, namespace in sorted(wanted, key=lambda each: (each[0].qualified, each[1])):
            verbs = [verb for verb in ("create", "patch") if not await self._may(verb, kind, namespace)]
            if verbs:
                denied.setdefault((" and ".join(verbs), kind.qualified), []).append(namespace)
        if denied:
            return self._no_rights(f"not allowed: {'; '.join(denied_texts(denied))}")
        for each in self._objects:
            if each["kind"] != "ClusterRole":
                continue
            try:
                await self._apply_dry(each)
            except Forbidden as error:
                return self._no_rights(f"ClusterRole {each['metadata']['name']}: {error}")
            except (TransportError, ApiError):
                break  # of admission, which has a check of its own
        return Finding("rights", FindingVerdict.OK, f"to apply {len(wanted)} kinds and grant their roles")

    def _no_rights(self, found: str) -> Finding:
        fix = (
            f"use a kubeconfig of an administrator, or have one apply the output of `shoal cluster join --print`; "
            f"with --namespaces fewer rights are granted ({self._source} is used now)"
        )
        return Finding("rights", FindingVerdict.FAILED, found, fix)

    async def _may(self, verb: str, kind: ResourceType, namespace: str) -> bool:
        about = {"verb": verb, "group": kind.group, "resource": kind.plural, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {name: value for name, value in about.items() if value}},
        }
        answer: Any = await self._client.request("POST", _REVIEWS.path(), body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _namespace(self, name: str) -> Finding | None:
        try:
            await self._client.of(_NAMESPACES).get(name)
        except NotFound:
            fix = f"kubectl create namespace {name}"
            return Finding("namespaces", FindingVerdict.FAILED, f"namespace {name} does not exist", fix)
        except (TransportError, ApiError) as error:
            return Finding("namespaces", FindingVerdict.WARNING, f"namespace {name}: {error}")
        return None

    # admission

    async def _admission(self) -> Finding:
        """Whether the server would accept the Deployments and pods of the agents."""
        place = NAMESPACE
        try:
            await self._client.of(_NAMESPACES).get(NAMESPACE)
        except NotFound:
            place = "default"
        except (TransportError, ApiError) as error:
            return Finding("admission", FindingVerdict.WARNING, str(error))
        deployments = [each for each in self._objects if each["kind"] == "Deployment"]
        for each in deployments:
            if (refused := await pod_refusal(self._client, _without_account(each), place)) is not None:
                return refused
        return Finding("admission", FindingVerdict.OK, f"accepts the pods of {len(deployments)} Deployments in {place}")

    async def _apply_dry(self, obj: Obj) -> None:
        kind = self._types[obj["kind"], obj["apiVersion"]]
        await self._client.of(kind).apply(obj, dry_run=True, force=True, field_manager=_PROBE)


def denied_texts(denied: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    """One text for the kinds that are denied with the same verbs in the same namespaces."""
    kinds: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (verbs, kind), namespaces in denied.items():
        kinds.setdefault((verbs, tuple(filter(None, namespaces))), []).append(kind)
    return [
        f"{verbs} {', '.join(names)}" + (f" in {', '.join(places)}" if places else "")
        for (verbs, places), names in kinds.items()
    ]


async def pod_refusal(client: Client, deployment: Obj, namespace: str) -> Finding | None:
    """Why a server would refuse a Deployment or its pods in a namespace; None if it accepts them."""
    name = deployment["metadata"]["name"]
    moved = deepcopy(deployment)
    moved["metadata"]["namespace"] = namespace
    pod: Obj = deepcopy(moved["spec"]["template"])
    pod = {**pod, "metadata": {**pod["metadata"], "generateName": f"{_PROBE}-", "namespace": namespace}}
    try:
        kind = builtin("deployments", "apps")
        await client.of(kind).apply(moved, dry_run=True, force=True, field_manager=_PROBE)
        await client.of(_PODS).create(pod, dry_run=True)
    except ApiError as error:
        if "dry run" in str(error):
            found = f"cannot be checked: {error}"
            return Finding(
                "admission", FindingVerdict.WARNING, found, "the webhook does not support dry runs; join and see"
            )
        return Finding("admission", FindingVerdict.FAILED, f"{name} is refused: {error}", admission_fix(str(error)))
    except TransportError as error:
        return Finding("admission", FindingVerdict.WARNING, str(error))
    return None


def _without_account(deployment: Obj) -> Obj:
    """Servers refuse pods of a service account that does not exist yet."""
    made = deepcopy(deployment)
    made["spec"]["template"]["spec"].pop("serviceAccountName", None)
    return made


def admission_fix(message: str) -> str:
    """What to do when a server refuses a pod with this message."""
    if "looking up service account" in message:
        return "wait until kube-controller-manager has made the account; without it no pod starts"
    if "PodSecurity" in message:
        return (
            f"allow the level in namespace {NAMESPACE}: kubectl label --overwrite namespace {NAMESPACE} "
            "pod-security.kubernetes.io/enforce=restricted, and no stricter custom policy"
        )
    if "quota" in message:
        return f"raise the ResourceQuota of namespace {NAMESPACE}, or remove it"
    if "LimitRange" in message or "maximum" in message or "minimum" in message:
        return f"change the LimitRange of namespace {NAMESPACE}"
    return f"have the owner of this admission policy or webhook exempt namespace {NAMESPACE}"


def version_finding(version: Any) -> Finding:
    """From the answer of ``/version``."""
    shown = str(version.get("gitVersion", "unknown"))
    with suppress(KeyError, ValueError):
        number = (int(version["major"]), int("".join(c for c in version["minor"] if c.isdigit())))
        if number >= TRIED:
            return Finding("version", FindingVerdict.OK, shown)
        if number >= OLDEST:
            fix = f"releases are tried with {TRIED[0]}.{TRIED[1]} and newer: upgrade, or try a test cluster first"
            return Finding("version", FindingVerdict.WARNING, shown, fix)
        fix = f"upgrade the cluster to Kubernetes {OLDEST[0]}.{OLDEST[1]} or newer"
        return Finding("version", FindingVerdict.FAILED, shown, fix)
    return Finding("version", FindingVerdict.WARNING, f"the server reports version {shown!r}")
