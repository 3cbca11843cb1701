"""Executes the next step of claims and volumes."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from shoal.client import Scope
from shoal.controllers.context import ControllerContext
from shoal.controllers.persistentvolume.caches import BY_CLAIM, VolumeCaches
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.persistentvolume.folders import Folders
from shoal.controllers.persistentvolume.model import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    STORAGE_PROVISIONER,
    AskProvisioner,
    Bind,
    ClaimStep,
    Free,
    Grow,
    Nothing,
    Provision,
    RecordEvent,
    Release,
    Reserve,
    SetPhase,
    WriteStatus,
    class_of,
    notes_of,
)
from shoal.controllers.persistentvolume.plan import (
    claim_finalizers,
    claim_step,
    claims_of_pod,
    folder_volume,
    reclaims,
    volume_finalizers,
    volume_step,
)
from shoal.errors import AlreadyExists, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, ObjectKey, Result

_REMIND_S = 15.0  # interval of the event on a pending claim


class ClaimController:
    def __init__(self, context: ControllerContext, sources: VolumeCaches, config: VolumeConfig) -> None:
        self._context = context
        self._sources = sources
        self._config = config
        self._folders = Folders(config.directory)
        self._claims, self._volumes = context.resource("persistentvolumeclaims"), context.resource("persistentvolumes")

    async def reconcile(self, key: ObjectKey) -> Result:
        claim = self._sources.claims.get(key)
        if claim is None:
            return DONE
        try:
            return await self._step(key, claim)
        except NotFound:
            return DONE  # deleted meanwhile

    async def _step(self, key: ObjectKey, claim: Obj) -> Result:
        finalizers = claim_finalizers(claim, await self._is_used(key, claim))
        if finalizers != (claim["metadata"].get("finalizers") or []):
            await self._patch(claim, {"metadata": {"finalizers": finalizers or None}})
            return DONE
        if claim["metadata"].get("deletionTimestamp"):
            return DONE
        name = claim["spec"].get("volumeName")
        volume = self._sources.volumes.get(ObjectKey("", name)) if name else None
        storage_class = self._sources.classes.get(ObjectKey("", class_of(claim)))
        step = claim_step(claim, volume, self._candidates(key, claim), storage_class)
        return await self._carry_out(claim, step, storage_class)

    def _candidates(self, key: ObjectKey, claim: Obj) -> tuple[Obj, ...]:
        """Candidate volumes for the claim: reserved for it, or unclaimed."""
        if claim["spec"].get("volumeName"):
            return ()
        return self._sources.volumes.by_index(BY_CLAIM, str(key)) + self._sources.volumes.by_index(BY_CLAIM, "")

    async def _is_used(self, key: ObjectKey, claim: Obj) -> bool:
        """Whether a pod that may run uses the claim. A "no" is verified with the server, because a pod missing only in
        the cache would lose its data."""
        if any(pod["spec"].get("nodeName") for pod in self._sources.pods.by_index(BY_CLAIM, str(key))):
            return True
        if not claim["metadata"].get("deletionTimestamp"):
            return False
        pods = (await self._context.resource("pods").list(Scope(namespace=key.namespace))).items
        return any(pod["spec"].get("nodeName") and key.name in claims_of_pod(pod) for pod in pods)

    async def _carry_out(self, claim: Obj, step: ClaimStep, storage_class: Obj | None) -> Result:
        match step:
            case Nothing():
                return DONE
            case Reserve(volume):
                await self._reserve(claim, volume)
            case Bind(volume):
                await self._bind(claim, volume)
            case WriteStatus(status, reason, message):
                await self._claims.replace_status({**claim, "status": status})
                if reason:
                    self._context.events.record(claim, EventType.WARNING, reason, message)
            case Provision():
                assert storage_class is not None
                await self._provision(claim, storage_class)
            case AskProvisioner(name):
                return await self._ask(claim, name)
            case Grow(volume):
                size = {"capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]}}
                await self._patch_volume(volume, {"spec": size})
            case RecordEvent(reason, message, warning):
                kind = EventType.WARNING if warning else EventType.NORMAL
                self._context.events.record(claim, kind, reason, message)
                return Result(after_s=_REMIND_S)
            case _:
                assert_never(step)
        return DONE

    async def _reserve(self, claim: Obj, volume: Obj) -> None:
        about = claim["metadata"]
        reference = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": about["namespace"],
            "name": about["name"], "uid": about["uid"], "resourceVersion": about["resourceVersion"],
        }  # fmt: skip
        patch: Obj = {"spec": {"claimRef": reference}}
        if not volume["spec"].get("claimRef"):
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        await self._patch_volume(volume, patch)

    async def _bind(self, claim: Obj, volume: Obj) -> None:
        notes = {BIND_COMPLETED: "yes"}
        if not claim["spec"].get("volumeName"):
            notes[BOUND_BY_CONTROLLER] = "yes"
        patch = {"metadata": {"annotations": notes}, "spec": {"volumeName": volume["metadata"]["name"]}}
        await self._patch(claim, patch)

    async def _provision(self, claim: Obj, storage_class: Obj) -> None:
        about = claim["metadata"]
        path = self._folders.path(f"pvc-{about['uid']}", about["namespace"], about["name"])
        made = folder_volume(claim, storage_class, str(path), self._config.pinned)
        name = made["metadata"]["name"]
        try:
            await self._folders.make(path)
        except OSError as error:
            message = f'failed to provision volume with StorageClass "{class_of(claim)}": {error}'
            self._context.events.record(claim, EventType.WARNING, "ProvisioningFailed", message)
            raise
        try:
            await self._volumes.create(made)
        except AlreadyExists:
            return  # created before; its watch event has not arrived yet
        message = f"Successfully provisioned volume {name}"
        self._context.events.record(claim, EventType.NORMAL, "ProvisioningSucceeded", message)

    async def _ask(self, claim: Obj, provisioner: str) -> Result:
        if notes_of(claim).get(STORAGE_PROVISIONER) != provisioner:
            await self._patch(claim, {"metadata": {"annotations": {STORAGE_PROVISIONER: provisioner}}})
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._context.events.record(claim, EventType.NORMAL, "ExternalProvisioning", message)
        return Result(after_s=_REMIND_S)

    async def _patch(self, claim: Obj, patch: Obj) -> None:
        about = claim["metadata"]
        await self._claims.patch(about["name"], _guarded(claim, patch), about["namespace"])

    async def _patch_volume(self, volume: Obj, patch: Obj) -> None:
        await self._volumes.patch(volume["metadata"]["name"], _guarded(volume, patch))


class VolumeController:
    def __init__(self, context: ControllerContext, sources: VolumeCaches, config: VolumeConfig) -> None:
        self._context = context
        self._sources = sources
        self._folders = Folders(config.directory)
        self._claims, self._volumes = context.resource("persistentvolumeclaims"), context.resource("persistentvolumes")

    async def reconcile(self, key: ObjectKey) -> Result:
        volume = self._sources.volumes.get(key)
        if volume is None:
            return DONE
        try:
            return await self._step(key, volume)
        except NotFound:
            return DONE

    async def _step(self, key: ObjectKey, volume: Obj) -> Result:
        finalizers = volume_finalizers(volume)
        if finalizers != (volume["metadata"].get("finalizers") or []):
            await self._volumes.patch(key.name, _guarded(volume, {"metadata": {"finalizers": finalizers or None}}))
            return DONE
        reference = volume["spec"].get("claimRef") or {}
        claim = self._sources.claims.get(ObjectKey(reference.get("namespace", ""), reference.get("name", "")))
        step = volume_step(volume, claim)
        match step:
            case Nothing():
                pass
            case SetPhase(phase):
                await self._set_phase(volume, phase)
            case Release():
                await self._release(volume, reference)
            case Free():
                notes = {"annotations": {BOUND_BY_CONTROLLER: None}}
                await self._volumes.patch(key.name, _guarded(volume, {"metadata": notes, "spec": {"claimRef": None}}))
            case _:
                assert_never(step)
        return DONE

    async def _set_phase(self, volume: Obj, phase: str) -> Obj:
        status = {**(volume.get("status") or {}), "phase": phase}
        return await self._volumes.replace_status({**volume, "status": status})

    async def _release(self, volume: Obj, reference: Obj) -> None:
        """Release the volume after asking the server: a claim missing only in the cache must not lose its data."""
        try:
            claim = await self._claims.get(reference["name"], reference["namespace"])
        except NotFound:
            claim = None
        if claim is not None and claim["metadata"]["uid"] == reference["uid"]:
            if claim["spec"].get("volumeName") in (None, "", volume["metadata"]["name"]):
                return
        if (volume.get("status") or {}).get("phase") != "Released":
            volume = await self._set_phase(volume, "Released")
        if reclaims(volume):
            await self._reclaim(volume)

    async def _reclaim(self, volume: Obj) -> None:
        path = Path((volume["spec"].get("hostPath") or {}).get("path") or "")
        if not await self._folders.remove(path):
            message = f"the folder {path} is not in the directory of this provisioner, or could not be removed"
            self._context.events.record(volume, EventType.WARNING, "VolumeFailedDelete", message)
            return
        about = volume["metadata"]
        await self._volumes.delete(about["name"], uid=about["uid"])


def _guarded(obj: Obj, patch: Obj) -> Obj:
    """The patch, valid only for this resourceVersion."""
    about = obj["metadata"]
    guard = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
    return {**patch, "metadata": {**guard, **patch.get("metadata", {})}}
