"""A changed image reaches the gateways of a cluster one after the other.

Each gateway replaces its pods without ever having fewer, and a single one surges to two. But a bad image is noticed
only where it runs: so the next gateway gets a changed image when the one before runs it in all replicas. One that never
does keeps the others on what they have. A gateway that is new, or whose environment names the image, waits for nobody:
the control plane decides on those.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import ApiError
from shoal.krane import labels
from shoal.krane.sentinels.reports import running_image
from shoal.kube.objects import Obj


class GatewayWaits(ApiError):
    """Everything but the image is applied; it is tried again."""

    reason, code = "GatewayWaits", 409


class ImageWaves:
    """One per applier."""

    def __init__(self) -> None:
        self._changing: tuple[str, str] | None = None  # the gateway that was given an image last, and the image

    def blocker(self, key: str, deployments: Iterable[Obj]) -> str:
        """The gateway that has to be done before ``key`` may get another image; empty: none. ``deployments`` are as
        they were last seen."""
        seen = {
            found: each
            for each in deployments
            if (found := labels.key_of(each)) is not None and not is_candidate(each)
        }  # fmt: skip
        if self._changing is not None:
            last, image = self._changing
            if last != key and last in seen and running_image(seen[last]) != image:
                return str(seen[last]["metadata"]["name"])
        rolling = [
            str(each["metadata"]["name"])
            for found, each in sorted(seen.items())
            if found != key and each["spec"].get("replicas") and not running_image(each)
        ]
        return rolling[0] if rolling else ""

    def begins(self, key: str, image: str) -> None:
        self._changing = key, image


def is_candidate(deployment: Obj) -> bool:
    """Whether it is a sentinel's second Deployment, with the version that is being rolled out."""
    return labels.CANDIDATE in (deployment["metadata"].get("labels") or {})


def image_in(deployment: Obj | None) -> str:
    """What a gateway's Deployment names; empty when there is none."""
    containers = ((((deployment or {}).get("spec") or {}).get("template") or {}).get("spec") or {}).get(
        "containers"
    ) or ()
    return str(containers[0].get("image") or "") if containers else ""
