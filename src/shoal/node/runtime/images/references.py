"""Full names of images, and which credentials are for their registries; pure."""

from __future__ import annotations

from shoal.node.runtime.model import RegistryCredentials
from shoal.node.runtime.process.images import ImageReference, parse_reference

HUB = "docker.io"
_HUB_NAMES = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})


def registry_of(host: str) -> str:
    return HUB if not host or host in _HUB_NAMES else host


def full_reference(text: str) -> ImageReference:
    """With the registry, and ``library/`` where Docker Hub has it; raises ``ImageFailure`` INVALID_NAME."""
    found = parse_reference(text)
    host = registry_of(found.host)
    path = found.path if host != HUB or "/" in found.path else f"library/{found.path}"
    return ImageReference(host, path, found.tag, found.digest)


def matching(
    reference: ImageReference, credentials: tuple[RegistryCredentials, ...]
) -> tuple[RegistryCredentials, ...]:
    """The credentials for the registry of an image, most specific first."""
    registry = registry_of(reference.host)
    found = []
    for each in credentials:
        server = each.server.removeprefix("https://").removeprefix("http://")
        host, _, path = server.partition("/")
        path = "" if path.rstrip("/") in ("v1", "v2") else path.strip("/")
        if registry_of(host) == registry and (
            reference.path == path or f"{reference.path}/".startswith(f"{path}/" if path else "")
        ):
            found.append((len(path), each))
    found.sort(key=lambda pair: -pair[0])
    return tuple(each for _, each in found)
