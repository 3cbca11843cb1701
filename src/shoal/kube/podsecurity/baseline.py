"""The baseline standard: no known privilege escalation out of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.podsecurity.findings import (
    Check,
    Violation,
    containers,
    named,
    pod_context,
    quoted,
    setters,
    some,
    whole_containers,
)

Annotations = Mapping[str, str]

_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
_SELINUX_1_0: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
_SELINUX_1_31: Final = _SELINUX_1_0 | {"container_engine_t"}
_SYSCTLS_1_0: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
})  # fmt: skip
_SYSCTLS_1_27: Final = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29: Final = _SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
_SYSCTLS_1_32: Final = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_1_37: Final = _SYSCTLS_1_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
PROFILES: Final = ("RuntimeDefault", "Localhost")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")


def in_user_namespace(spec: Obj) -> bool:
    return spec.get("hostUsers") is False


def app_armor_profile(annotations: Annotations, spec: Obj) -> Violation | None:
    values: set[str] = set()
    by_pod = _bad_profile(pod_context(spec), values)
    found = [name for name, context in containers(spec) if _bad_profile(context, values)]
    noted = sorted(
        f'{key}="{value}"'
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    listed = sorted(values) + noted
    if not listed:
        return None
    who = [text for text in (setters(by_pod, found), some("annotation", "annotations", noted) if noted else "") if text]
    return Violation(
        some("forbidden AppArmor profile", "forbidden AppArmor profiles", listed),
        f"{' and '.join(who)} must not set AppArmor profile type to {quoted(listed)}",
    )


def _bad_profile(context: Obj, values: set[str]) -> bool:
    profile = context.get("appArmorProfile")
    if profile is None or profile.get("type") in PROFILES:
        return False
    values.add(profile.get("type", ""))
    return True


def capabilities(annotations: Annotations, spec: Obj) -> Violation | None:
    extra: set[str] = set()
    found = []
    for name, context in containers(spec):
        added = {c for c in (context.get("capabilities") or {}).get("add") or () if c not in _CAPABILITIES}
        if added:
            extra |= added
            found.append(name)
    if not found:
        return None
    detail = f"{named(found)} must not include {quoted(sorted(extra))} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def host_namespaces(annotations: Annotations, spec: Obj) -> Violation | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(found)) if found else None


def host_path_volumes(annotations: Annotations, spec: Obj) -> Violation | None:
    found = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", named(found, "volume")) if found else None


def host_ports(annotations: Annotations, spec: Obj) -> Violation | None:
    ports: set[str] = set()
    found = []
    for container in whole_containers(spec):
        taken = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if taken:
            ports |= taken
            found.append(container.get("name", ""))
    if not found:
        return None
    use, noun = some("uses", "use", found), some("hostPort", "hostPorts", ports)
    return Violation("hostPort", f"{named(found)} {use} {noun} {', '.join(sorted(ports))}")


def host_probes(annotations: Annotations, spec: Obj) -> Violation | None:
    hosts: set[str] = set()
    found: set[str] = set()
    for container in whole_containers(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(field) for field in _PROBES] + [lifecycle.get(field) for field in _HOOKS]
        for handler in handlers:
            for action in ("httpGet", "tcpSocket"):
                host = ((handler or {}).get(action) or {}).get("host")
                if host:
                    hosts.add(host)
                    found.add(container.get("name", ""))
    if not found:
        return None
    use, noun = some("uses", "use", found), some("probe or lifecycle host", "probe or lifecycle hosts", hosts)
    return Violation("probe or lifecycle host", f"{named(sorted(found))} {use} {noun} {quoted(sorted(hosts))}")


def privileged(annotations: Annotations, spec: Obj) -> Violation | None:
    found = [name for name, context in containers(spec) if context.get("privileged")]
    return Violation("privileged", f"{named(found)} must not set securityContext.privileged=true") if found else None


def proc_mount(annotations: Annotations, spec: Obj) -> Violation | None:
    kinds: set[str] = set()
    found = []
    for name, context in containers(spec):
        kind = context.get("procMount")
        if kind is not None and kind != "Default":
            kinds.add(kind)
            found.append(name)
    if not found:
        return None
    return Violation("procMount", f"{named(found)} must not set securityContext.procMount to {quoted(sorted(kinds))}")


def proc_mount_of_host_users(annotations: Annotations, spec: Obj) -> Violation | None:
    return None if in_user_namespace(spec) else proc_mount(annotations, spec)


def _selinux_options(allowed: frozenset[str]) -> Check:
    def check(annotations: Annotations, spec: Obj) -> Violation | None:
        faults: set[str] = set()
        types: set[str] = set()

        def is_bad(context: Obj) -> bool:
            options = context.get("seLinuxOptions") or {}
            bad = {field for field in ("user", "role") if options.get(field)}
            faults.update(bad)
            kind = options.get("type") or ""
            if kind not in allowed:
                types.add(kind)
                return True
            return bool(bad)

        by_pod = is_bad(pod_context(spec))
        found = [name for name, context in containers(spec) if is_bad(context)]
        if not by_pod and not found:
            return None
        what = [named(sorted(types), "type")] if types else []
        what += [f"{field} may not be set" for field in ("user", "role") if field in faults]
        detail = f"{setters(by_pod, found)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}"
        return Violation("seLinuxOptions", detail)

    return check


selinux_options_1_0: Final = _selinux_options(_SELINUX_1_0)
selinux_options_1_31: Final = _selinux_options(_SELINUX_1_31)


def seccomp_annotations(annotations: Annotations, spec: Obj) -> Violation | None:
    keys = [_SECCOMP_POD, *(_SECCOMP_CONTAINER + name for name, _ in containers(spec))]
    found = sorted({
        f'{key}="{annotations[key]}"'
        for key in keys
        if key in annotations
        and annotations[key] not in ("runtime/default", "docker/default")
        and not annotations[key].startswith("localhost/")
    })  # fmt: skip
    if not found:
        return None
    return Violation("seccompProfile", f"forbidden {some('annotation', 'annotations', found)} {', '.join(found)}")


def seccomp_profile(annotations: Annotations, spec: Obj) -> Violation | None:
    values: set[str] = set()
    by_pod = bad_seccomp(pod_context(spec), values)
    found = [name for name, context in containers(spec) if bad_seccomp(context, values)]
    return seccomp_set(by_pod, found, values)


def bad_seccomp(context: Obj, values: set[str]) -> bool:
    profile = context.get("seccompProfile")
    if profile is None or profile.get("type") in PROFILES:
        return False
    values.add(profile.get("type", ""))
    return True


def seccomp_set(by_pod: bool, found: list[str], values: set[str]) -> Violation | None:
    if not by_pod and not found:
        return None
    who = setters(by_pod, found)
    detail = f"{who} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return Violation("seccompProfile", detail)


def _sysctls(allowed: frozenset[str]) -> Check:
    def check(annotations: Annotations, spec: Obj) -> Violation | None:
        names = (sysctl.get("name", "") for sysctl in pod_context(spec).get("sysctls") or ())
        found = [name for name in names if name not in allowed]
        return Violation("forbidden sysctls", ", ".join(found)) if found else None

    return check


sysctls_1_0: Final = _sysctls(_SYSCTLS_1_0)
sysctls_1_27: Final = _sysctls(_SYSCTLS_1_27)
sysctls_1_29: Final = _sysctls(_SYSCTLS_1_29)
sysctls_1_32: Final = _sysctls(_SYSCTLS_1_32)
sysctls_1_37: Final = _sysctls(_SYSCTLS_1_37)


def windows_host_process(annotations: Annotations, spec: Obj) -> Violation | None:
    def is_set(context: Obj) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    by_pod = is_set(pod_context(spec))
    found = [name for name, context in containers(spec) if is_set(context)]
    if not by_pod and not found:
        return None
    who = setters(by_pod, found)
    return Violation("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true")
