"""NamespaceLifecycle: rejects creations in a namespace that is missing or terminating.

The commit rejects such writes too. Plugins that need objects of the namespace call this first, so that the error
names the missing namespace and not a missing object in it.
"""

from __future__ import annotations

from shoal.apiserver.admission.model import Admission
from shoal.apiserver.context import Core
from shoal.apiserver.effects import terminating_mark
from shoal.errors import Forbidden, NotFound
from shoal.store import Key


def check_namespace(core: Core, admission: Admission) -> None:
    """Raise the error for a creation in a namespace that is missing or terminating."""
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
