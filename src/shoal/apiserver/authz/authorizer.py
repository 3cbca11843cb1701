"""May they: what is asked for, and the decision.

The administrators' group may do everything; a denial names user, verb, resource and namespace as Kubernetes words it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.apiserver.context import User
from shoal.errors import Forbidden, qualified

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for, in the terms of authorization."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""  # for requests that are not about resources


class Authorizer:
    """Allows what a user may do, and words the refusal as Kubernetes does."""

    def allows_all(self, user: User) -> bool:
        """Whether there is nothing to ask: the administrators."""
        return MASTERS in user.groups

    def allows(self, user: User, attributes: Attributes) -> bool:
        return self.allows_all(user)

    def check(self, user: User, attributes: Attributes) -> None:
        if not self.allows(user, attributes):
            raise Forbidden(refusal(user, attributes), details=_details(attributes))


def refusal(user: User, asked: Attributes) -> str:
    if asked.path:
        return f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    subject = qualified(asked.resource, asked.group) + (f' "{asked.name}"' if asked.name else "")
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return (
        f'{subject} is forbidden: User "{user.name}" cannot {asked.verb} resource "{resource}" '
        f'in API group "{asked.group}" {where}'
    )


def _details(asked: Attributes) -> dict[str, str]:
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return {name: value for name, value in details.items() if value}
