"""The restricted standard: baseline plus current practice for hardening pods."""

from __future__ import annotations

from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.podsecurity.baseline import Annotations, bad_seccomp, in_user_namespace, seccomp_set
from shoal.kube.podsecurity.findings import Check, Violation, containers, named, pod_context, quoted, setters, some

_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
_REFUSED_VOLUMES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def not_on_windows(check: Check) -> Check:
    """Skip the check for Windows pods, which cannot have its fields."""

    def checked(annotations: Annotations, spec: Obj) -> Violation | None:
        return None if (spec.get("os") or {}).get("name") == "windows" else check(annotations, spec)

    return checked


def for_host_users(check: Check) -> Check:
    """In a user namespace, root has no privileges on the host."""

    def checked(annotations: Annotations, spec: Obj) -> Violation | None:
        return None if in_user_namespace(spec) else check(annotations, spec)

    return checked


def allow_privilege_escalation(annotations: Annotations, spec: Obj) -> Violation | None:
    found = [name for name, context in containers(spec) if context.get("allowPrivilegeEscalation") is not False]
    if not found:
        return None
    detail = f"{named(found)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def capabilities(annotations: Annotations, spec: Obj) -> Violation | None:
    keeping, adding = list[str](), list[str]()
    forbidden: set[str] = set()
    for name, context in containers(spec):
        given = context.get("capabilities") or {}
        if "ALL" not in (given.get("drop") or ()):
            keeping.append(name)
        added = {capability for capability in given.get("add") or () if capability != "NET_BIND_SERVICE"}
        if added:
            adding.append(name)
            forbidden |= added
    details = []
    if keeping:
        details.append(f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        what = quoted(sorted(forbidden))
        details.append(f"{named(adding)} must not include {what} in securityContext.capabilities.add")
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def volumes(annotations: Annotations, spec: Obj) -> Violation | None:
    found, types = list[str](), set[str]()
    for volume in spec.get("volumes") or ():
        if all(volume.get(source) is None for source in _VOLUMES):
            found.append(volume.get("name", ""))
            types.add(next((source for source in _REFUSED_VOLUMES if volume.get(source) is not None), "unknown"))
    if not found:
        return None
    use, noun = some("uses", "use", found), some("restricted volume type", "restricted volume types", types)
    return Violation("restricted volume types", f"{named(found, 'volume')} {use} {noun} {quoted(sorted(types))}")


def run_as_non_root(annotations: Annotations, spec: Obj) -> Violation | None:
    of_pod = pod_context(spec).get("runAsNonRoot")
    explicit, implicit = list[str](), list[str]()
    for name, context in containers(spec):
        own = context.get("runAsNonRoot")
        if own is False:
            explicit.append(name)
        elif own is None and not of_pod:
            implicit.append(name)
    if of_pod is False or explicit:
        who = setters(of_pod is False, explicit)
        return Violation("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    if implicit:
        return Violation("runAsNonRoot != true", f"pod or {named(implicit)} must set securityContext.runAsNonRoot=true")
    return None


def run_as_user(annotations: Annotations, spec: Obj) -> Violation | None:
    by_pod = pod_context(spec).get("runAsUser") == 0
    found = [name for name, context in containers(spec) if context.get("runAsUser") == 0]
    if not by_pod and not found:
        return None
    return Violation("runAsUser=0", f"{setters(by_pod, found)} must not set runAsUser=0")


def seccomp_profile(annotations: Annotations, spec: Obj) -> Violation | None:
    values: set[str] = set()
    of_pod = pod_context(spec)
    by_pod = bad_seccomp(of_pod, values)
    covered = of_pod.get("seccompProfile") is not None and not by_pod
    explicit, implicit = list[str](), list[str]()
    for name, context in containers(spec):
        if context.get("seccompProfile") is None:
            if not covered:
                implicit.append(name)
        elif bad_seccomp(context, values):
            explicit.append(name)
    finding = seccomp_set(by_pod, explicit, values)
    if finding is None and implicit:
        detail = f"pod or {named(implicit)} must set securityContext.seccompProfile.type to "
        return Violation("seccompProfile", f'{detail}"RuntimeDefault" or "Localhost"')
    return finding
