"""Applies the manifests of a cluster's agents, and waits until they have joined.

The order is that of ``manifests``; server-side apply with our own field manager, so that applying again repairs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from urllib.parse import urlsplit

from shoal.app.findings import Finding, FindingVerdict
from shoal.app.joining.blockers import VARYING, Blocker, Cause, ClusterState, blockers, causes, is_rolled_out, progress
from shoal.app.joining.examine import ClusterExamination, pod_refusal
from shoal.app.joining.fleet import FleetSide
from shoal.app.joining.manifests import API_PORTS, EDGE, KRANE, NAMESPACE, AgentPlan, manifests
from shoal.base.clock import Clock
from shoal.cli.rest import CannotReach
from shoal.client import Client, Propagation, Scope, TransportError, builtin
from shoal.errors import ApiError, NotFound, ShoalError
from shoal.kube.objects import Obj

ACCOUNT = "shoal.dev/account"  # annotation of pods: the id of their service account
MANAGER = "shoal-cluster-join"  # of fields, and the label of our objects
_POLL_S = 1.0
_LOOKS = 4
_TAIL_LINES = 40
_DEPLOYMENTS, _REPLICA_SETS, _PODS = builtin("deployments", "apps"), builtin("replicasets", "apps"), builtin("pods")
_BUDGETS, _POLICIES = builtin("poddisruptionbudgets", "policy"), builtin("networkpolicies", "networking.k8s.io")
_NODES, _SLICES = builtin("nodes"), builtin("endpointslices", "discovery.k8s.io")
_REGION_LABEL = "topology.kubernetes.io/region"


class CannotJoin(ShoalError):
    """What is in the way, one line each with its fix."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the manifests depend on."""

    region: str = ""  # by the labels of the nodes; empty if they have none, or several
    api_ports: tuple[int, ...] = API_PORTS
    is_local: bool = False  # its pods are processes of this machine, so they reach what listens on loopback


async def read_facts(client: Client, url: str) -> ClusterFacts:
    """Of a cluster whose API server has this URL; what may not be read is left out."""
    regions: set[str] = set()
    runtimes: set[str] = set()
    ports = {*API_PORTS, urlsplit(url).port or 443}
    try:
        for node in (await client.of(_NODES).list()).items:
            regions.add((node["metadata"].get("labels") or {}).get(_REGION_LABEL, ""))
            info = (node.get("status") or {}).get("nodeInfo") or {}
            runtimes.add(str(info.get("containerRuntimeVersion", "")).partition(":")[0])
        scope = Scope(namespace="default", label_selector="kubernetes.io/service-name=kubernetes")
        for each in (await client.of(_SLICES).list(scope)).items:
            ports |= {port["port"] for port in each.get("ports") or () if port.get("port")}
    except ApiError:
        pass  # the examination tells what is not allowed
    region = next(iter(regions)) if len(regions) == 1 else ""
    return ClusterFacts(region, tuple(sorted(ports)), runtimes == {"process"})


async def examine(client: Client, plan: AgentPlan, *, clock: Clock, source: str, say: Callable[[str], None]) -> None:
    """Raise ``CannotJoin`` with every failed check; warnings are said."""
    examination = ClusterExamination(client, manifests(plan), clock=clock, source=source, namespaces=plan.namespaces)
    failed = []
    async for each in examination.findings():
        if each.verdict is FindingVerdict.FAILED:
            failed.append(each)
        elif each.verdict is FindingVerdict.WARNING:
            say(f"warning: {_text(each)}")
    if failed:
        raise CannotJoin("the cluster cannot be joined:\n" + "\n".join(_text(each) for each in failed))


async def apply_all(client: Client, objects: Sequence[Obj]) -> None:
    """Apply in order. Before the Deployments the server is asked whether it would accept their pods.

    Pods note the id of their account: the tokens of one that was deleted and made again are no longer valid, and a
    kubelet replaces them only with their pods."""
    accounts: dict[str, str] = {}  # ids by name
    for each in objects:
        if each["kind"] == "Deployment":
            each = _with_account(each, accounts)
            refused = await pod_refusal(client, each, NAMESPACE)
            if refused is not None and refused.verdict is FindingVerdict.FAILED:
                raise CannotJoin(f"the cluster refuses the agents:\n{_text(refused)}")
        kind = await client.by_kind(each["kind"], each["apiVersion"])
        made = await kind.apply(each, force=True, field_manager=MANAGER)
        if each["kind"] == "ServiceAccount" and each["metadata"].get("namespace") == NAMESPACE:
            accounts[each["metadata"]["name"]] = made["metadata"]["uid"]


def _with_account(deployment: Obj, accounts: Mapping[str, str]) -> Obj:
    made = deepcopy(deployment)
    template = made["spec"]["template"]
    if uid := accounts.get(template["spec"].get("serviceAccountName", "")):
        template["metadata"].setdefault("annotations", {})[ACCOUNT] = uid
    return made


async def remove_others(client: Client, plan: AgentPlan) -> list[str]:
    """Remove the Deployments of an earlier join that the plan does not have; returns their names."""
    scope = Scope(namespace=NAMESPACE, label_selector=f"app.kubernetes.io/managed-by={MANAGER}")
    removed = []
    for each in (await client.of(_DEPLOYMENTS).list(scope)).items:
        name = each["metadata"]["name"]
        if name not in plan.deployments:
            for kind in (_DEPLOYMENTS, _BUDGETS, _POLICIES):
                with suppress(NotFound):
                    await client.of(kind).delete(name, NAMESPACE, propagation=Propagation.BACKGROUND)
            removed.append(name)
    return removed


class JoinWatch:
    """Waits for the agents of a plan."""

    def __init__(
        self, client: Client, fleet: FleetSide, cluster: str, plan: AgentPlan, *, clock: Clock,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._client = client
        self._fleet = fleet
        self._cluster = cluster
        self._plan = plan
        self._clock = clock
        self._say = say
        self._said: set[str] = set()
        self._causes: dict[str, list[str]] = {}  # the parts that were named, by the shape of the cause
        self._looks: Counter[str] = Counter()  # in a row with something in the way, by part

    async def wait(self, timeout_s: float) -> None:
        """Return when all are there; ``CannotJoin`` after ``timeout_s`` names what is in the way."""
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            told, found = await self._look()
            if not told and not found:
                return
            if self._clock.monotonic() >= deadline_s:
                raise CannotJoin(self._report(timeout_s, told, found))
            await self._clock.sleep(_POLL_S)

    async def _look(self) -> tuple[dict[str, str], list[Blocker]]:
        """What each part waits for, and what is in its way."""
        try:
            state = await self._state()
        except (TransportError, ApiError) as error:
            return {"cluster": str(error)}, []
        told = await self._told()
        newest = {each["metadata"]["name"]: each for each in state.deployments}
        for name in self._plan.deployments:
            if name not in newest or not is_rolled_out(newest[name]):
                told.setdefault(name, "its pods are not available yet")
        for line in progress(state.deployments, self._plan.deployments, told):
            self._once(line)
        found = blockers(state) if told else []
        self.found(found)
        return told, found

    def found(self, found: Sequence[Blocker]) -> None:
        """Say what is in the way, as one look has found it."""
        self._looks = Counter({each.part: self._looks[each.part] + 1 for each in found})
        for cause in causes(found):
            self._tell(cause)

    def _tell(self, cause: Cause) -> None:
        """Say it once: of all parts that have it by then, and later the names of others. What passes by
        itself, as while an agent starts, is not told."""
        known = self._causes.setdefault(cause.shape, [])
        late = [part for part in cause.parts if part not in known]
        if late and all(self._looks[part] >= _LOOKS for part in late):
            self._say(f"{', '.join(late)}: the same as {known[0]}" if known else str(cause))
            known += late

    async def _told(self) -> dict[str, str]:
        """What the control plane and the navigator say of their agents, where they miss them."""
        asked = {KRANE: self._fleet.agent_state}
        if EDGE in self._plan.deployments:
            asked[EDGE] = self._fleet.edge_state
        told = {}
        for name, ask in asked.items():
            try:
                told[name] = await asyncio.to_thread(ask, self._cluster)
            except CannotReach as error:
                told[name] = str(error)
        return {name: text for name, text in told.items() if text}

    async def _state(self) -> ClusterState:
        named = f"app.kubernetes.io/name in ({','.join(self._plan.deployments)})"
        scope = Scope(namespace=NAMESPACE, label_selector=named)
        deployments = (await self._client.of(_DEPLOYMENTS).list(scope)).items
        sets = (await self._client.of(_REPLICA_SETS).list(scope)).items
        pods = (await self._client.of(_PODS).list(scope)).items
        logs = {pod["metadata"]["name"]: await self._log(pod) for pod in pods if not _is_ready(pod)}
        return ClusterState(deployments=tuple(deployments), replica_sets=tuple(sets), pods=tuple(pods), logs=logs)

    async def _log(self, pod: Obj) -> str:
        started = (pod.get("status") or {}).get("containerStatuses") or ()
        if not any(each.get("started") or each.get("restartCount") or each.get("lastState") for each in started) and (
            not any((each.get("state") or {}).get("running") for each in started)
        ):
            return ""
        name = pod["metadata"]["name"]
        try:
            reply = await self._client.of(_PODS).log(name, NAMESPACE, tail_lines=_TAIL_LINES)
            try:
                return b"".join([part async for part in reply.chunks()]).decode(errors="replace")
            finally:
                await reply.close()
        except (TransportError, ApiError):
            return ""

    def _once(self, line: str) -> None:
        """Say a line, unless it differs from an earlier one only in numbers and ids."""
        shape = VARYING.sub("", line)
        if shape not in self._said:
            self._said.add(shape)
            self._say(line)

    def _report(self, timeout_s: float, told: Mapping[str, str], found: Sequence[Blocker]) -> str:
        lines = [f"{self._cluster} has not joined within {timeout_s:g} s:"]
        lines += [str(each) for each in causes(found)]
        named = {each.part for each in found}
        lines += [f"{name}: {text}" for name, text in told.items() if name not in named]
        lines.append(
            f"it goes on trying; see kubectl -n {NAMESPACE} get pods, or take it back with: "
            f"shoal cluster leave {self._cluster}"
        )
        return "\n".join(lines)


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _text(finding: Finding) -> str:
    return f"{finding.name}: {finding.found}" + (f"\n  fix: {finding.fix}" if finding.fix else "")


async def gone(client: Client, namespace: str, *, clock: Clock, timeout_s: float) -> bool:
    """Whether a namespace is gone before the time is over."""
    deadline_s = clock.monotonic() + timeout_s
    while clock.monotonic() < deadline_s:
        try:
            await client.of(builtin("namespaces")).get(namespace)
        except NotFound:
            return True
        await clock.sleep(_POLL_S)
    return False
