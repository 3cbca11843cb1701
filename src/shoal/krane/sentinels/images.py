"""Which image a gateway runs: its environment's, else the agent's, else that of nodes whose containers are processes.

There is no default name: a name on a public registry that is not ours may be anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shoal.client import Client, builtin
from shoal.errors import ApiError
from shoal.krane.deployments.rendering import NEWEST, Rendering
from shoal.kube.objects import Obj

# Of nodes that run programs instead of images, and never pull one; as earlier releases named it everywhere.
IN_TABLE = "shoal/sentinel:latest"
_PULL_NOTHING = ("process", "simulated")  # runtimes, as nodes name them
_NODES = builtin("nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Of the agent, for all its gateways; ``image`` and ``rendering`` as they were chosen for one."""

    image: str = ""
    pull_secret: str = ""  # in the namespace of the gateways
    env: Mapping[str, str] = field(default_factory=dict)  # further variables
    rendering: Rendering = Rendering(NEWEST)


class GatewayImageMissing(ApiError):
    """Nobody has named an image that the cluster could pull."""

    reason, code = "GatewayImageMissing", 422


def named_image(image: str) -> str:
    """The environment's; empty where it names none. Control planes then send the default of earlier releases, which
    earlier agents need and no registry of ours has."""
    image = image.strip()
    return "" if image == IN_TABLE else image


async def chosen_image(client: Client, wanted: str, settings: GatewaySettings) -> str:
    """``GatewayImageMissing`` says where to set one. ``wanted`` is the environment's."""
    if wanted or settings.image:
        return wanted or settings.image
    if pulls_nothing((await client.of(_NODES).list()).items):
        return IN_TABLE
    raise GatewayImageMissing(
        "no image for gateways is set, so none is installed: start the agent of this cluster with --gateway-image "
        "REGISTRY/NAME:TAG (SHOAL_KRANE_GATEWAY_IMAGE), or set spec.sentinel.image of the environment; Shoal has no "
        "image of its own on a public registry"
    )


def pulls_nothing(nodes: Iterable[Obj]) -> bool:
    """Whether every node takes images from a table. Pure."""
    names = [
        str((((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion")) or "").partition("://")[
            0
        ]
        for node in nodes
    ]
    return bool(names) and all(name in _PULL_NOTHING for name in names)
