"""Resource types, and the URL paths of their objects.

``ResourceType`` has the data that clients need: no schema and no rules. Built-in ones are known without asking a
server; all others come from discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from shoal.kube.resources import BUILTIN


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource in one version. ``kind`` may be empty when it is not known."""

    group: str
    version: str
    plural: str
    namespaced: bool = True
    kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``deployments.apps``: how messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of an object, of one of its subresources, or of the collection when there is no name."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.qualified} {name!r} needs a namespace")
        place = f"/namespaces/{_segment(namespace)}" if namespace and self.namespaced else ""
        path = f"{root}{place}/{self.plural}"
        if name:
            path += f"/{_segment(name)}"
        if subresource:
            path += f"/{subresource}"
        return path


def _segment(text: str) -> str:
    if text in (".", "..") or "/" in text:
        raise ValueError(f"{text!r} is not a valid path segment")
    return quote(text, safe=":~")


@cache
def _by_name() -> dict[tuple[str, str], ResourceType]:
    found: dict[tuple[str, str], ResourceType] = {}
    for resource in BUILTIN:
        kept = ResourceType(resource.group, resource.version, resource.plural, resource.namespaced, resource.kind)
        for name in (resource.plural, resource.kind):
            if resource.preferred or (name, resource.group) not in found:
                found[name, resource.group] = kept
    return found


def builtin(name: str, group: str = "") -> ResourceType:
    """The built-in resource of that plural or kind, in its preferred version; ``KeyError`` when there is none."""
    return _by_name()[name, group]
