"""Security contexts of pods and containers."""

from __future__ import annotations

import re

from shoal.errors import duplicate, forbidden, invalid, not_supported, required, too_long
from shoal.kube.kinds.checks import Errors, check_enum, check_range, check_syntax, size_bytes
from shoal.kube.kinds.core.paths import check_descending
from shoal.kube.names import is_dns1123_subdomain
from shoal.kube.objects import Obj

_PROFILES = frozenset({"Localhost", "RuntimeDefault", "Unconfined"})
_FS_GROUP_POLICIES = frozenset({"OnRootMismatch", "Always"})
_GROUP_POLICIES = frozenset({"Merge", "Strict"})
_SELINUX_POLICIES = frozenset({"Recursive", "MountOption"})
_PROC_MOUNTS = frozenset({"Default", "Unmasked"})
_MAX_ID = 2**31 - 1
_PATH_MAX = 4095
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_is_sysctl = re.compile(_SYSCTL).fullmatch
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "fs.mqueue.")
_GMSA_LIMIT_KIB = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf"{_DNS}(?:\.{_DNS})*")
_BAD_USER = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_DOTS_OR_SPACES = re.compile(r"[. ]+")
# Fields that Windows pods may not have, because only Linux has them.
_LINUX_POD_FIELDS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_LINUX_CONTAINER_FIELDS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


def check_pod_security(context: Obj, spec: Obj, path: str, errors: Errors) -> None:
    """``spec.securityContext``."""
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        if context.get(field) is not None:
            check_range(context[field], 0, _MAX_ID, f"{path}.{field}", errors)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        check_range(group, 0, _MAX_ID, f"{path}.supplementalGroups[{index}]", errors)
    if context.get("sysctls"):
        _check_sysctls(context["sysctls"], spec, f"{path}.sysctls", errors)
    for field, choices in (
        ("fsGroupChangePolicy", _FS_GROUP_POLICIES),
        ("supplementalGroupsPolicy", _GROUP_POLICIES),
        ("seLinuxChangePolicy", _SELINUX_POLICIES),
    ):
        if context.get(field) is not None:
            check_enum(context[field], choices, f"{path}.{field}", errors)
    _check_profiles(context, path, errors)


def check_container_security(context: Obj, host_users: bool, path: str, errors: Errors) -> None:
    """``securityContext`` of one container."""
    for field in ("runAsUser", "runAsGroup"):
        if context.get(field) is not None:
            check_range(context[field], 0, _MAX_ID, f"{path}.{field}", errors)
    mount = context.get("procMount")
    if mount is not None:
        check_enum(mount, _PROC_MOUNTS, f"{path}.procMount", errors)
        if host_users and mount == "Unmasked":
            errors.append(invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    if context.get("allowPrivilegeEscalation") is False:
        _check_no_escalation(context, path, errors)
    _check_profiles(context, path, errors)


def _check_no_escalation(context: Obj, path: str, errors: Errors) -> None:
    detail = "cannot set `allowPrivilegeEscalation` to false and "
    if context.get("privileged"):
        errors.append(invalid(path, context, f"{detail}`privileged` to true"))
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        errors.append(invalid(path, context, f"{detail}`capabilities.Add` CAP_SYS_ADMIN"))


def _check_profiles(context: Obj, path: str, errors: Errors) -> None:
    seccomp = context.get("seccompProfile")
    if seccomp is not None:
        _check_seccomp(seccomp, f"{path}.seccompProfile", errors)
    app_armor = context.get("appArmorProfile")
    if app_armor is not None:
        _check_app_armor(app_armor, f"{path}.appArmorProfile", errors)
    windows = context.get("windowsOptions")
    if windows is not None:
        _check_windows_options(windows, f"{path}.windowsOptions", errors)


def _check_seccomp(profile: Obj, path: str, errors: Errors) -> None:
    kind, local = profile.get("type"), profile.get("localhostProfile")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    else:
        check_enum(kind, _PROFILES, f"{path}.type", errors)
    where = f"{path}.localhostProfile"
    if kind != "Localhost":
        if local is not None:
            errors.append(invalid(where, profile, "can only be set when seccomp type is Localhost"))
    elif local is None:
        errors.append(required(where, "must be set when seccomp type is Localhost"))
    else:
        check_descending(local, where, errors)


def _check_app_armor(profile: Obj, path: str, errors: Errors) -> None:
    kind, local = profile.get("type"), profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if not kind:
        errors.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    elif kind not in _PROFILES:
        errors.append(not_supported(f"{path}.type", kind, _PROFILES))
    elif kind != "Localhost":
        if local is not None:
            errors.append(invalid(where, local, "can only be set when AppArmor type is Localhost"))
    elif local is None or local == "":
        errors.append(required(where, "must be set when AppArmor type is Localhost"))
    else:
        if local.strip() != local:
            errors.append(invalid(where, local, "must not be padded with whitespace"))
        if size_bytes(local) > _PATH_MAX:
            errors.append(too_long(where, _PATH_MAX))


def _check_sysctls(sysctls: list[Obj], spec: Obj, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        where, name = f"{path}[{index}].name", sysctl.get("name", "")
        if not name:
            errors.append(required(where))
        elif len(name) > 253 or not _is_sysctl(name):
            errors.append(invalid(where, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$"))
        elif name in seen:
            errors.append(duplicate(where, name))
        seen.add(name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.append(invalid(where, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and (dotted.startswith(_IPC_SYSCTLS) or dotted == "kernel.sem"):
            errors.append(invalid(where, name, "may not be specified when 'hostIPC' is true"))


def _check_windows_options(options: Obj, path: str, errors: Errors) -> None:
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        check_syntax(name, is_dns1123_subdomain, f"{path}.gmsaCredentialSpecName", errors)
    spec = options.get("gmsaCredentialSpec")
    if spec is not None:
        where = f"{path}.gmsaCredentialSpec"
        if not spec:
            errors.append(invalid(where, spec, "gmsaCredentialSpec cannot be an empty string"))
        elif size_bytes(spec) > _GMSA_LIMIT_KIB * 1024:
            errors.append(invalid(where, spec, f"gmsaCredentialSpec size must be under {_GMSA_LIMIT_KIB} KiB"))
    user = options.get("runAsUserName")
    if user is not None:
        _check_windows_user(user, f"{path}.runAsUserName", errors)


def _check_windows_user(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(invalid(path, name, "runAsUserName cannot be an empty string"))
        return
    if _CONTROL.search(name):
        errors.append(invalid(path, name, "runAsUserName cannot contain control characters"))
        return
    domain, backslash, user = name.partition("\\")
    if not backslash:
        domain, user = "", name
    elif "\\" in user:
        errors.append(invalid(path, name, "runAsUserName cannot contain more than one backslash"))
        return
    elif len(domain) >= 256:
        errors.append(invalid(path, name, "runAsUserName's Domain length must be under 256 characters"))
    elif not (_NETBIOS.fullmatch(domain) or _DOMAIN.fullmatch(domain)):
        errors.append(invalid(path, name, "runAsUserName's Domain doesn't match the NetBios nor the DNS format"))
    if not user:
        errors.append(invalid(path, name, "runAsUserName's User cannot be empty"))
    elif len(user) > 104:
        errors.append(invalid(path, name, "runAsUserName's User length must not be longer than 104 characters"))
    if user and _DOTS_OR_SPACES.fullmatch(user):
        errors.append(invalid(path, name, "runAsUserName's User cannot contain only periods or spaces"))
    if _BAD_USER.search(user):
        listed = '"/\\:;|=,+*?<>@[]'
        errors.append(invalid(path, name, f"runAsUserName's User cannot contain the following characters: {listed}"))


def check_os_fields(spec: Obj, os_name: str, path: str, errors: Errors) -> None:
    """Fields that do not exist on the operating system of the pod."""
    if os_name == "linux":
        _check_linux(spec, path, errors)
    elif os_name == "windows":
        _check_windows(spec, path, errors)


def _security_contexts(spec: Obj, path: str) -> list[tuple[Obj, str]]:
    found = []
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            if container.get("securityContext") is not None:
                found.append((container["securityContext"], f"{path}.{field}[{index}].securityContext"))
    return found


def check_host_process(spec: Obj, path: str, errors: Errors) -> None:
    """Host process containers on Windows: all containers of the pod or none, and in the host network."""
    pod_wide = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    own = [((c.get("windowsOptions") or {}).get("hostProcess"), where) for c, where in _security_contexts(spec, path)]
    if pod_wide is None and not any(flag for flag, _ in own):
        return
    for flag, where in own:
        if pod_wide is not None and flag is not None and flag != pod_wide:
            shown = "true" if pod_wide else "false"
            detail = f"pod hostProcess value must be identical if both are specified, was {shown}"
            errors.append(invalid(f"{where}.windowsOptions.hostProcess", flag, detail))
    count = sum(len(spec.get(field) or ()) for field in CONTAINER_LISTS)
    hosted = sum(1 for flag, _ in own if flag or (flag is None and pod_wide))
    hosted += count - len(own) if pod_wide else 0
    if hosted and hosted != count:
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.append(invalid(path, "", detail))
    if hosted and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.append(invalid(f"{path}.hostNetwork", False, detail))


def _check_linux(spec: Obj, path: str, errors: Errors) -> None:
    contexts = [(spec.get("securityContext") or {}, f"{path}.securityContext"), *_security_contexts(spec, path)]
    for context, where in contexts:
        if context.get("windowsOptions") is not None:
            errors.append(forbidden(f"{where}.windowsOptions", "windows options cannot be set for a linux pod"))


def _check_windows(spec: Obj, path: str, errors: Errors) -> None:
    detail = "cannot be set for a windows pod"
    context = spec.get("securityContext") or {}
    for field in _LINUX_POD_FIELDS:
        if context.get(field) is not None and context[field] != []:
            errors.append(forbidden(f"{path}.securityContext.{field}", detail))
    for field in ("hostUsers", "shareProcessNamespace"):
        if spec.get(field) is not None:
            errors.append(forbidden(f"{path}.{field}", detail))
    for field in ("hostPID", "hostIPC"):
        if spec.get(field):
            errors.append(forbidden(f"{path}.{field}", detail))
    for container, where in _security_contexts(spec, path):
        for field in _LINUX_CONTAINER_FIELDS:
            if container.get(field) is not None:
                errors.append(forbidden(f"{where}.{field}", detail))
