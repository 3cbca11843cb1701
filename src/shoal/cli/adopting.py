"""What `shoal import --adopt` writes beside the App: which Deployment its first revision is, and which labels the pods
of later ones need so that what leads to them now goes on leading there; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoal.kube.labels import from_object
from shoal.kube.objects import Obj

_OWN_LABELS = ("app.kubernetes.io/component", "app.kubernetes.io/managed-by")  # of Shoal's pods
_ARGO, _FLUX, _FLUX_HELM = (
    "argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name",
)  # fmt: skip
_HELM, _KUBECTL = "meta.helm.sh/release-name", "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class ImportedApp:
    document: Obj
    obstacles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def adoption(deployment: Obj, cluster: str, autoscalers: Sequence[Obj]) -> Obj:
    """The field ``adopt`` of a region."""
    about = deployment["metadata"]
    made: Obj = {
        "cluster": cluster,
        "namespace": about["namespace"],
        "deployment": about["name"],
        "uid": about["uid"],
        "selector": dict((deployment["spec"].get("selector") or {}).get("matchLabels") or {}),
    }
    for each in autoscalers:
        target = (each.get("spec") or {}).get("scaleTargetRef") or {}
        if (target.get("kind"), target.get("name")) == ("Deployment", about["name"]):
            made["autoscaler"] = each["metadata"]["name"]
            break
    return made


def selecting(deployment: Obj, services: Iterable[Obj]) -> list[Obj]:
    """The Services that lead to its pods."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    found = []
    for service in services:
        selector = (service.get("spec") or {}).get("selector")
        if selector and from_object({"matchLabels": selector}).matches(labels):
            found.append(service)
    return found


def labels_for(deployment: Obj, services: Iterable[Obj], made: ImportedApp) -> dict[str, str]:
    """What the pods of later revisions need to be selected by the same Services."""
    wanted: dict[str, str] = {}
    for service in selecting(deployment, services):
        selector: dict[str, str] = service["spec"]["selector"]
        if taken := sorted(name for name in selector if name in _OWN_LABELS):
            made.notes.append(
                f"Service {service['metadata']['name']} selects by {', '.join(taken)}, which Shoal sets itself: it "
                "leads to no later revision; take that label out of its selector"
            )
            continue
        wanted |= selector
    return wanted


def other_managers(deployment: Obj) -> list[str]:
    """Tools that apply the Deployment too, each with how to end that."""
    about = deployment["metadata"]
    marks = {**(about.get("annotations") or {}), **(about.get("labels") or {})}
    found = []
    if release := marks.get(_HELM):
        found.append(
            f"Helm release {release} has it: keep it out of later upgrades (annotation helm.sh/resource-policy: keep, "
            "then take it out of the chart)"
        )
    if _ARGO in marks:
        found.append("Argo CD applies it: set Prune=false on it, then take it out of the repository")
    for mark in (_FLUX, _FLUX_HELM):
        if owner := marks.get(mark):
            found.append(
                f"Flux ({owner}) applies it: set kustomize.toolkit.fluxcd.io/prune: disabled on it, then take it out "
                "of the repository"
            )
    if not found and _KUBECTL in marks:
        found.append("it was written by kubectl apply: do not apply its file again, Shoal would not undo it")
    return found


def adopted_already(deployment: Obj, app: str, by: str) -> str:
    """Why it cannot be adopted again; empty when it is this App's, or nobody's. ``by`` is who has it."""
    labels = deployment["metadata"].get("labels") or {}
    if "shoal.dev/fleet" not in labels or by == app:
        return ""
    owner = f"App {by}" if by else "a revision of an App"
    return f"it belongs to Shoal already ({owner}): use another Deployment, or that App"
