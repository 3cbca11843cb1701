"""Claims, volumes, storage classes and the pods that use claims; and the class that every cluster begins with."""

from __future__ import annotations

from shoal.controllers.kit import Kit
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.controllers.persistentvolume.ephemeral import EphemeralClaims, has_ephemeral
from shoal.controllers.persistentvolume.reconcile import Claims, Volumes
from shoal.controllers.persistentvolume.sources import Sources, uses_claims_otherwise
from shoal.controllers.rounds import Rounds
from shoal.errors import AlreadyExists

_FOREVER_S = 1e9


def add(kit: Kit, config: VolumeConfig) -> None:
    sources = Sources(kit)
    claims = kit.controller("persistentvolume-claims", Claims(kit, sources, config).reconcile)
    claims.watches(sources.claim_informer)
    claims.maps(sources.volume_informer, sources.claims_for_volume)
    claims.maps(sources.class_informer, sources.waiting_claims)
    claims.maps(sources.pod_informer, sources.claims_for_pod, when=uses_claims_otherwise)
    volumes = kit.controller("persistentvolume-volumes", Volumes(kit, sources, config).reconcile)
    volumes.watches(sources.volume_informer)
    volumes.maps(sources.claim_informer, sources.volumes_for_claim)
    ephemeral = EphemeralClaims(kit, sources.pods, sources.claims)
    kit.controller("ephemeral-volume", ephemeral.reconcile).watches(sources.pod_informer, when=has_ephemeral)
    if config.class_name:
        kit.manager.add(Rounds("storage-class", lambda: _make_class(kit, sources, config), clock=kit.clock))


async def _make_class(kit: Kit, sources: Sources, config: VolumeConfig) -> float:
    """Make the default class once, in a cluster that has no class at all: who deletes it later has a reason."""
    await sources.classes.synced.wait()
    if not len(sources.classes):
        try:
            await kit.resource("storageclasses", "storage.k8s.io").create(config.storage_class())
        except AlreadyExists:
            pass
    return _FOREVER_S
