"""Watches claims, volumes, storage classes and pods; creates the default storage class."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.periodic import PeriodicLoop
from shoal.controllers.persistentvolume.caches import VolumeCaches, uses_claims_otherwise
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.persistentvolume.ephemeral import EphemeralClaims, has_ephemeral
from shoal.controllers.persistentvolume.reconcile import ClaimController, VolumeController
from shoal.errors import AlreadyExists

_FOREVER_S = 1e9


def add(context: ControllerContext, config: VolumeConfig) -> None:
    sources = VolumeCaches(context)
    claims = context.controller("persistentvolume-claims", ClaimController(context, sources, config).reconcile)
    claims.watches(sources.claim_informer)
    claims.maps(sources.volume_informer, sources.claims_for_volume)
    claims.maps(sources.class_informer, sources.waiting_claims)
    claims.maps(sources.pod_informer, sources.claims_for_pod, when=uses_claims_otherwise)
    volumes = context.controller("persistentvolume-volumes", VolumeController(context, sources, config).reconcile)
    volumes.watches(sources.volume_informer)
    volumes.maps(sources.claim_informer, sources.volumes_for_claim)
    ephemeral = EphemeralClaims(context, sources.pods, sources.claims)
    context.controller("ephemeral-volume", ephemeral.reconcile).watches(sources.pod_informer, when=has_ephemeral)
    if config.class_name:
        context.manager.add(
            PeriodicLoop("storage-class", lambda: _make_class(context, sources, config), clock=context.clock)
        )


async def _make_class(context: ControllerContext, sources: VolumeCaches, config: VolumeConfig) -> float:
    """Create the default class once, in a cluster without any class; if a user deletes it later, it stays deleted."""
    await sources.classes.synced.wait()
    if not len(sources.classes):
        try:
            await context.resource("storageclasses", "storage.k8s.io").create(config.storage_class())
        except AlreadyExists:
            pass
    return _FOREVER_S
