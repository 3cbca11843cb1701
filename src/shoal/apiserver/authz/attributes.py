"""What is asked for, in the terms of authorization."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attributes:
    """A verb on a resource, or on a path that is not one."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""  # for requests that are not about resources
    fields: str = ""  # the field selector of a list, watch or deletecollection
