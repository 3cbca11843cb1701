"""Looks at a Deployment that is to be adopted, and refuses it before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shoal.client import Scope, builtin
from shoal.errors import Conflict, NotFound
from shoal.krane import labels
from shoal.krane.deployments.adoptable import current_hash, own_pods, recorded_hash, refusals, selector_text
from shoal.krane.deployments.adopted import render_adopted
from shoal.krane.deployments.render import Rendered, is_scaled
from shoal.krane.objects.writer import NotOurs, Writer
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

DEPLOYMENTS = builtin("deployments", "apps")
AUTOSCALERS = builtin("horizontalpodautoscalers", "autoscaling")
_PODS = builtin("pods")


class NotAdoptable(Conflict):
    """The Deployment is not the one to adopt, or cannot be adopted as it is; it was not changed."""


async def rendered_adopted(writer: Writer, owner: Owner, state: pb.DeploymentState, adopted: pb.Adopted) -> Rendered:
    """The objects of the revision. ``NotAdoptable`` and ``NotOurs`` say why it cannot be, and what to do."""
    live = await _found(writer, owner, state, adopted)
    scaler = await writer.get(AUTOSCALERS, state.namespace, adopted.autoscaler) if adopted.autoscaler else None
    pods = await writer.list(_PODS, Scope(namespace=state.namespace, label_selector=selector_text(adopted.selector)))
    if not labels.is_adopted(live):
        autoscalers = await writer.list(AUTOSCALERS, Scope(namespace=state.namespace))
        found = refusals(
            live, pods, autoscalers, image=state.image, autoscaler=adopted.autoscaler, is_scaled=is_scaled(state)
        )
        if found:
            raise NotAdoptable("; ".join(found))
    return render_adopted(state, owner, live, scaler, current_hash(own_pods(live, pods), recorded_hash(live)))


async def _found(writer: Writer, owner: Owner, state: pb.DeploymentState, adopted: pb.Adopted) -> Obj:
    named = f"Deployment {state.namespace}/{adopted.deployment}"
    live = await writer.get(DEPLOYMENTS, state.namespace, adopted.deployment)
    if live is None:
        raise NotFound(
            f"{named}, which revision {state.revision} is, does not exist in cluster {owner.cluster}: name the cluster "
            "where it runs; if it was deleted, `shoal restart` makes a revision of its own"
        )
    if live["metadata"]["uid"] != adopted.uid:
        raise NotAdoptable(
            f"{named} in cluster {owner.cluster} has the uid {live['metadata']['uid']}, and {adopted.uid} is to be "
            "adopted: it is another one of the same name; import it again, and check the cluster"
        )
    selector = (live["spec"]["selector"] or {}).get("matchLabels") or {}
    if selector != adopted.selector:
        raise NotAdoptable(
            f"{named} selects its pods by {_shown(selector)}, and the selector of `adopt` is "
            f"{_shown(adopted.selector)}: import it again"
        )
    known: Mapping[str, str] = live["metadata"].get("labels") or {}
    if labels.FLEET in known and not _is_ours(known, owner, state):
        raise NotOurs(
            f"{named} belongs to another app of Shoal already ({labels.owner_shown(live)}, deployment "
            f"{known.get(labels.DEPLOYMENT, '')}): use another Deployment, or the app that has it"
        )
    return live


def _is_ours(known: Mapping[str, str], owner: Owner, state: pb.DeploymentState) -> bool:
    shards = [owner, *([replace(owner, shard=state.taken_from)] if state.taken_from else [])]
    identity = (labels.FLEET, labels.CLUSTER, labels.SHARD)
    is_owner = any(
        all(known.get(name) == wanted[name] for name in identity) for wanted in map(labels.owner_labels, shards)
    )
    return is_owner and known.get(labels.DEPLOYMENT) == labels.label_value(state.deployment)


def _shown(wanted: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
