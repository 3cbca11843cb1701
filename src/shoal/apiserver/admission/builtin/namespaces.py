"""NamespaceLifecycle, as far as it is not part of every commit: creating in a namespace that is missing or ending.

The commit refuses such writes in any case. Plugins that would refuse for lack of what belongs to a namespace ask here
first, so that the client is told the cause and not its consequence.
"""

from __future__ import annotations

from shoal.apiserver.admission.model import Admission
from shoal.apiserver.context import Core
from shoal.apiserver.effects import terminating_mark
from shoal.errors import Forbidden, NotFound
from shoal.store import Key


def check_namespace(core: Core, admission: Admission) -> None:
    """Raise what is told of a creation in a namespace that takes none."""
    namespace = admission.namespace
    if core.store.get(Key("namespaces", "", namespace)) is None:
        raise NotFound.of("namespaces", "", namespace)
    if core.store.get(terminating_mark(namespace)) is None:
        return
    error = admission.denied(f"unable to create new content in namespace {namespace} because it is being terminated")
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    raise Forbidden(error.message, details=error.details, causes=[cause])
