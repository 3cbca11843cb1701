"""The parameter objects that a binding points its policy to."""

from __future__ import annotations

from shoal.apiserver.admission.policies.model import AdmissionPolicy, Misconfigured, ParamKind, ParamRef, PolicyBinding
from shoal.apiserver.context import Core
from shoal.apiserver.registry import Served
from shoal.kube.objects import Obj
from shoal.store import Entry

_NO_NAMESPACE = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
_CLUSTER_KIND = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
_NONE_FOUND = "no params found for policy binding with `Deny` parameterNotFoundAction"


def kind_of(core: Core, kind: ParamKind) -> Served:
    """The resource of a policy's parameters."""
    served = core.registry.by_kind(kind.group, kind.version, kind.kind)
    if served is None:
        raise Misconfigured(f"failed to find resource referenced by paramKind: '{kind}'")
    return served


async def collect(core: Core, policy: AdmissionPolicy, binding: PolicyBinding, namespace: str) -> list[Obj | None]:
    """The parameters to evaluate the policy with, one after the other; a None when it has no parameters."""
    if policy.param_kind is None or binding.param_ref is None:
        return [None]
    served = kind_of(core, policy.param_kind)
    entries = _entries(core, served, binding.param_ref, namespace)
    if not entries and binding.param_ref.deny_if_missing:
        raise Misconfigured(_NONE_FOUND)
    if served.converter is not None:
        entries = list(await served.converter.entries(served, entries))
    return [_shown(served, entry) for entry in entries]


def _entries(core: Core, served: Served, reference: ParamRef, namespace: str) -> list[Entry]:
    if served.resource.namespaced:
        within = reference.namespace or namespace
        if not within:
            raise Misconfigured(_NO_NAMESPACE)
    else:
        within = ""
        if reference.namespace:
            raise Misconfigured(_CLUSTER_KIND)
    if reference.name:
        entry = core.store.get(served.key_of(within, reference.name))
        return [] if entry is None else [entry]
    selector = reference.selector
    if selector is None:
        raise Misconfigured("one of name or selector must be provided")
    return list(core.store.range(served.key, within, where=lambda attrs: selector.matches(attrs.labels)).entries)


def _shown(served: Served, entry: Entry) -> Obj:
    resource = served.resource
    return {**served.decode(entry), "kind": resource.kind, "apiVersion": resource.api_version}
