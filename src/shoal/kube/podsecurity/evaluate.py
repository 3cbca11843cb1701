"""The checks of each standard in each version, and their findings for a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.podsecurity import baseline, restricted
from shoal.kube.podsecurity.findings import Check, Violation
from shoal.kube.podsecurity.policy import BASELINE, PRIVILEGED, Standard

_NO_ANNOTATIONS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A check in all versions; from ``replaces_from`` on it replaces a check of the baseline standard."""

    id: str
    since: tuple[tuple[int, Check], ...]  # minor version -> the check from then on, ascending
    replaces: str = ""
    replaces_from: int = 0

    def at(self, minor: int) -> Check | None:
        found = None
        for start, check in self.since:
            if start <= minor:
                found = check
        return found


# Each list is in the order of findings in messages: by id.
_BASELINE: Final = (
    _Rule(id="appArmorProfile", since=((0, baseline.app_armor_profile),)),
    _Rule(id="capabilities_baseline", since=((0, baseline.capabilities),)),
    _Rule(id="hostNamespaces", since=((0, baseline.host_namespaces),)),
    _Rule(id="hostPathVolumes", since=((0, baseline.host_path_volumes),)),
    _Rule(id="hostPorts", since=((0, baseline.host_ports),)),
    _Rule(id="hostProbesAndHostLifecycle", since=((34, baseline.host_probes),)),
    _Rule(id="privileged", since=((0, baseline.privileged),)),
    _Rule(id="procMount", since=((0, baseline.proc_mount), (35, baseline.proc_mount_of_host_users))),
    _Rule(id="seLinuxOptions", since=((0, baseline.selinux_options_1_0), (31, baseline.selinux_options_1_31))),
    _Rule(id="seccompProfile_baseline", since=((0, baseline.seccomp_annotations), (19, baseline.seccomp_profile))),
    _Rule(
        id="sysctls",
        since=(
            (0, baseline.sysctls_1_0),
            (27, baseline.sysctls_1_27),
            (29, baseline.sysctls_1_29),
            (32, baseline.sysctls_1_32),
            (37, baseline.sysctls_1_37),
        ),
    ),
    _Rule(id="windowsHostProcess", since=((0, baseline.windows_host_process),)),
)
_RESTRICTED: Final = (
    _Rule(
        id="allowPrivilegeEscalation",
        since=(
            (8, restricted.allow_privilege_escalation),
            (25, restricted.not_on_windows(restricted.allow_privilege_escalation)),
        ),
    ),
    _Rule(
        id="capabilities_restricted",
        since=((22, restricted.capabilities), (25, restricted.not_on_windows(restricted.capabilities))),
        replaces="capabilities_baseline",
        replaces_from=22,
    ),
    _Rule(id="procMount_restricted", since=((35, baseline.proc_mount),), replaces="procMount", replaces_from=35),
    _Rule(id="restrictedVolumes", since=((0, restricted.volumes),), replaces="hostPathVolumes"),
    _Rule(
        id="runAsNonRoot",
        since=((0, restricted.run_as_non_root), (35, restricted.for_host_users(restricted.run_as_non_root))),
    ),
    _Rule(
        id="runAsUser",
        since=((23, restricted.run_as_user), (35, restricted.for_host_users(restricted.run_as_user))),
    ),
    _Rule(
        id="seccompProfile_restricted",
        since=((19, restricted.seccomp_profile), (25, restricted.not_on_windows(restricted.seccomp_profile))),
        replaces="seccompProfile_baseline",
        replaces_from=19,
    ),
)


@lru_cache(maxsize=256)
def _checks(standard: Standard) -> tuple[Check, ...]:
    minor = standard.minor
    if standard.level == PRIVILEGED:
        return ()
    rules: Iterable[_Rule] = _BASELINE
    if standard.level != BASELINE:
        replaced = {rule.replaces for rule in _RESTRICTED if rule.replaces_from <= minor}
        rules = [*(rule for rule in _BASELINE if rule.id not in replaced), *_RESTRICTED]
    return tuple(check for rule in rules if (check := rule.at(minor)) is not None)


def findings(standard: Standard, metadata: Obj, spec: Obj) -> list[Violation]:
    """All violations of a standard by a pod."""
    annotations = metadata.get("annotations") or _NO_ANNOTATIONS
    return [found for check in _checks(standard) if (found := check(annotations, spec)) is not None]


def in_detail(found: Iterable[Violation]) -> str:
    """``host ports (8080, 9090), privileged``."""
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in found)


def in_short(found: Iterable[Violation]) -> str:
    return ", ".join(finding.reason for finding in found)
