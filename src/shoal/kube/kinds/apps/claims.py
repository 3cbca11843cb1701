"""Claim templates of StatefulSets: persistent volume claims that do not exist yet."""

from __future__ import annotations

from shoal.kube.kinds.common import child, fill
from shoal.kube.kinds.core.pod_defaults import default_claim_spec
from shoal.kube.objects import Obj


def default_claim_template(claim: Obj) -> None:
    """Fill in a template as a complete claim, including its initial phase."""
    fill(claim, "apiVersion", "v1")
    fill(claim, "kind", "PersistentVolumeClaim")
    default_claim_spec(child(claim, "spec"))
    fill(child(claim, "status"), "phase", "Pending")
