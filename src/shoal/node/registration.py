"""Registers the node and keeps its Node object, lease and status up to date."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, TransportError, builtin
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.schema import kubernetes_version
from shoal.kube.times import format_micro_time
from shoal.node.config import NodeConfig
from shoal.node.node_object import MachineInfo, NodeConditions, new_node, node_status, same_but_heartbeat
from shoal.node.runtime.model import Image, Runtime, RuntimeFailure, RuntimeInfo

log = get_logger("node.registration")

LEASE_NAMESPACE = "kube-node-lease"
_BACKOFF = Backoff(base_s=0.2, cap_s=7.0)


class Registration:
    """The Node object and lease of one node. Call ``register`` first, then run ``renew`` and ``report``."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        config: NodeConfig,
        machine: MachineInfo,
        *,
        clock: Clock,
        random: Callable[[], float],
        pressures: Callable[[], frozenset[str]],
    ) -> None:
        self._nodes = client.of(builtin("nodes"))
        self._leases = client.of(builtin("leases", "coordination.k8s.io"))
        self._runtime = runtime
        self._config = config
        self._machine = machine
        self._clock = clock
        self._random = random
        self._pressures = pressures
        self._version = f"v{kubernetes_version()}"
        self._lease: Obj | None = None
        self._written: Obj = {}  # the status as sent, for comparison: the API drops empty fields
        self._written_at: float | None = None  # monotonic, of the last status
        self.node: Obj = {}  # as last seen

    async def register(self) -> None:
        """Create the Node, or adopt the existing one; retries until it succeeds."""
        failures = 0
        while True:
            try:
                await self._register()
            except (ApiError, TransportError, RuntimeFailure) as error:
                failures += 1
                delay_s = _BACKOFF.delay_s(failures, self._random)
                log.warning("registering the node failed; retrying", reason=str(error), delay_s=round(delay_s, 3))
                await self._clock.sleep(delay_s)
            else:
                log.info("node registered", node=self._config.name)
                return

    async def _register(self) -> None:
        info = await self._runtime.info()
        status = await self._status({}, info)
        try:
            self.node = await self._nodes.create(new_node(self._config, info, status))
            self._written, self._written_at = status, self._clock.monotonic()
        except AlreadyExists:
            self.node = await self._nodes.get(self._config.name)
            self.node = await self._labelled(info)
            await self.write_status()

    async def refresh(self) -> None:
        """Read the Node object again: other clients change its labels, taints and resources."""
        self.node = await self._nodes.get(self._config.name)

    async def _labelled(self, info: RuntimeInfo) -> Obj:
        """Set this run's labels on the Node object of an earlier run."""
        wanted = new_node(self._config, info, {})["metadata"]
        labels = self.node["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in wanted["labels"].items()):
            return self.node
        return await self._nodes.patch(self._config.name, {"metadata": {"labels": wanted["labels"]}})

    # lease

    async def renew(self) -> None:
        """Renew the lease until cancelled."""
        while True:
            try:
                await self._renew()
            except (Conflict, NotFound, AlreadyExists):
                self._lease = None  # written by another client, or deleted: read or create it again
                await self._clock.sleep(_BACKOFF.delay_s(1, self._random))
                continue
            except (ApiError, TransportError) as error:
                log.warning("renewing the lease failed", reason=str(error))
            await self._clock.sleep(self._config.renew_s * (1.0 + 0.04 * self._random()))

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self._config.name,
            "leaseDurationSeconds": self._config.lease_s,
            "renewTime": format_micro_time(self._clock.wall_s()),
        }
        if self._lease is not None:
            self._lease = await self._leases.replace({**self._lease, "spec": {**self._lease["spec"], **spec}})
            return
        about: Obj = {"name": self._config.name, "namespace": LEASE_NAMESPACE}
        if self.node:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._config.name, "uid": self.node["metadata"]["uid"]}
            about["ownerReferences"] = [owner]
        try:
            self._lease = await self._leases.create({"metadata": about, "spec": spec})
        except AlreadyExists:
            found = await self._leases.get(self._config.name, LEASE_NAMESPACE)
            self._lease = await self._leases.replace({**found, "spec": {**found["spec"], **spec}})

    # status

    async def report(self) -> None:
        """Write the status until cancelled: soon after a change, else at intervals."""
        while True:
            try:
                await self.write_status()
            except Conflict:
                continue  # retry with the newer object
            except NotFound:
                log.warning("the Node object was deleted; registering again", node=self._config.name)
                self._lease = None
                await self.register()
            except (ApiError, TransportError) as error:
                log.warning("writing the node's status failed", reason=str(error))
            await self._clock.sleep(self._config.status_s)

    async def write_status(self) -> None:
        """Write the status if it has changed or is old."""
        now = self._clock.monotonic()
        old = self.node.get("status") or {}
        try:
            info, fault = await self._runtime.info(), ""
        except RuntimeFailure as failure:
            info, fault = RuntimeInfo(name="unknown", version=""), str(failure)
        status = await self._status(old, info, fault)
        if fault:  # without the runtime's information, keep the last known values
            status |= {key: old[key] for key in ("capacity", "allocatable", "nodeInfo") if key in old}
        fresh = self._written_at is not None and now - self._written_at < self._config.unchanged_s
        if fresh and same_but_heartbeat(status, self._written):
            return
        try:
            self.node = await self._nodes.replace_status({**self.node, "status": status})
        except Conflict:
            self.node = await self._nodes.get(self._config.name)
            raise
        self._written, self._written_at = status, now

    async def _status(self, old: Obj, info: RuntimeInfo, fault: str = "") -> Obj:
        images: tuple[Image, ...] = ()
        if not fault:
            try:
                images = await self._runtime.images()
            except RuntimeFailure as failure:
                fault = str(failure)
        condition = NodeConditions(runtime_fault=fault, pressures=self._pressures())
        return node_status(
            old, self._config, info, self._machine, condition, images, version=self._version, now=self._clock.wall_s()
        )
