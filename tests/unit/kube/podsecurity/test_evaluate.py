"""The pod security standards: the findings of each check, by version, with their messages."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.podsecurity import BASELINE, LATEST, PRIVILEGED, RESTRICTED, Standard, findings, in_detail, in_short

GOOD = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str = "a", **context: Any) -> dict[str, Any]:
    return {"name": name, "securityContext": context}


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": annotations} if annotations else {}
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


def found(obj: dict[str, Any], level: str, minor: int = LATEST) -> str:
    return in_detail(findings(Standard(level, minor), obj["metadata"], obj["spec"]))


def good(name: str = "a", **context: Any) -> dict[str, Any]:
    return container(name, **(GOOD | context))


BASELINE_CASES = [
    (
        pod(container(privileged=True), container("b", privileged=False)),
        'privileged (container "a" must not set securityContext.privileged=true)',
    ),
    (pod(hostNetwork=True, hostPID=True, hostIPC=False), "host namespaces (hostNetwork=true, hostPID=true)"),
    (
        pod(volumes=[{"name": "x", "hostPath": {"path": "/"}}, {"name": "y", "emptyDir": {}}]),
        'hostPath volumes (volume "x")',
    ),
    (
        pod(
            {"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 443}, {"containerPort": 1}]},
            {"name": "b", "ports": [{"hostPort": 80}]},
        ),
        'hostPort (containers "a", "b" use hostPorts 443, 80)',
    ),
    (
        pod(container(capabilities={"add": ["NET_RAW", "CHOWN"]}), container("b", capabilities={"add": ["BPF"]})),
        'non-default capabilities (containers "a", "b" must not include "BPF", "NET_RAW" in '
        "securityContext.capabilities.add)",
    ),
    (
        pod(container(procMount="Unmasked")),
        'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
    ),
    (
        pod(
            container(seLinuxOptions={"type": "spc_t", "role": "r"}),
            securityContext={"seLinuxOptions": {"user": "u"}},
        ),
        'seLinuxOptions (pod and container "a" set forbidden securityContext.seLinuxOptions: type "spc_t"; user may '
        "not be set; role may not be set)",
    ),
    (
        pod(container(seccompProfile={"type": "Unconfined"}), securityContext={"seccompProfile": {"type": "Unconfined"}}),
        'seccompProfile (pod and container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
    ),
    (
        pod(securityContext={"sysctls": [{"name": "kernel.shm_rmid_forced"}, {"name": "kernel.msgmax"}]}),
        "forbidden sysctls (kernel.msgmax)",
    ),
    (
        pod(container(windowsOptions={"hostProcess": True}), securityContext={"windowsOptions": {"hostProcess": True}}),
        'hostProcess (pod and container "a" must not set securityContext.windowsOptions.hostProcess=true)',
    ),
    (
        pod(container(appArmorProfile={"type": "Unconfined"})),
        'forbidden AppArmor profile (container "a" must not set AppArmor profile type to "Unconfined")',
    ),
    (
        pod(container(), annotations={"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}),
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/a="unconfined"")',
    ),
    (
        pod({"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": "g"}}}}),
        'probe or lifecycle host (container "a" uses probe or lifecycle hosts "g", "h")',
    ),
    (pod(initContainers=[container("i", privileged=True)]), 'privileged (container "i" must not set '
     "securityContext.privileged=true)"),
    (pod(ephemeralContainers=[container("e", privileged=True)]), 'privileged (container "e" must not set '
     "securityContext.privileged=true)"),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "wanted"), BASELINE_CASES, ids=[case[1].split(" (")[0] for case in BASELINE_CASES])
def test_baseline_refuses(obj: dict[str, Any], wanted: str) -> None:
    assert found(obj, BASELINE) == wanted
    assert found(obj, PRIVILEGED) == ""
    assert found(obj, RESTRICTED) != ""


RESTRICTED_CASES = [
    (
        pod(good(allowPrivilegeEscalation=True), container("b", **(GOOD | {"allowPrivilegeEscalation": None}))),
        'allowPrivilegeEscalation != false (containers "a", "b" must set '
        "securityContext.allowPrivilegeEscalation=false)",
    ),
    (
        pod(good(capabilities={"add": ["CHOWN", "NET_BIND_SERVICE"]})),
        'unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; container "a" '
        'must not include "CHOWN" in securityContext.capabilities.add)',
    ),
    (
        pod(good(), volumes=[{"name": "n", "nfs": {}}, {"name": "h", "hostPath": {}}, {"name": "s", "secret": {}}]),
        'restricted volume types (volumes "n", "h" use restricted volume types "hostPath", "nfs")',
    ),
    (
        pod(good(runAsNonRoot=None)),
        'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)',
    ),
    (
        pod(good(runAsNonRoot=False), securityContext={"runAsNonRoot": False}),
        'runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)',
    ),
    (pod(good(runAsUser=0)), 'runAsUser=0 (container "a" must not set runAsUser=0)'),
    (
        pod(good(seccompProfile=None)),
        'seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "wanted"), RESTRICTED_CASES)
def test_restricted_refuses_what_baseline_lets_pass(obj: dict[str, Any], wanted: str) -> None:
    assert found(obj, RESTRICTED) == wanted


def test_a_hardened_pod_meets_every_standard() -> None:
    obj = pod(good(), initContainers=[good("i")], volumes=[{"name": "t", "projected": {}}])
    for level in (PRIVILEGED, BASELINE, RESTRICTED):
        for minor in (0, 8, 19, 22, 25, 34, 35, 37, 99, LATEST):
            assert found(obj, level, minor) == ""


def test_a_setting_of_the_pod_covers_containers_that_say_nothing() -> None:
    own = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    assert found(pod(good(runAsNonRoot=None, seccompProfile=None), securityContext=own), RESTRICTED) == ""
    assert "runAsNonRoot" in found(pod(good(runAsNonRoot=False), securityContext=own), RESTRICTED)


VERSIONS = [
    (pod({"name": "a", "readinessProbe": {"tcpSocket": {"host": "h"}}}), BASELINE, 33, 34, "probe or lifecycle host"),
    (pod(good(allowPrivilegeEscalation=True)), RESTRICTED, 7, 8,
     "allowPrivilegeEscalation != false"),
    (pod(good(capabilities={})), RESTRICTED, 21, 22, "unrestricted capabilities"),
    (pod(good(seccompProfile=None)), RESTRICTED, 18, 19, "seccompProfile"),
    (pod(good(runAsUser=0)), RESTRICTED, 22, 23, "runAsUser=0"),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "level", "before", "since", "reason"), VERSIONS)
def test_a_check_starts_with_its_version(obj: dict[str, Any], level: str, before: int, since: int, reason: str) -> None:
    def short(minor: int) -> str:
        return in_short(findings(Standard(level, minor), obj["metadata"], obj["spec"]))

    assert short(before) == ""
    assert short(since) == reason
    assert short(LATEST) == reason


RELAXED = [
    (pod(securityContext={"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]}), BASELINE, 26, 27),
    (pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_fin_timeout"}]}), BASELINE, 28, 29),
    (pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}), BASELINE, 31, 32),
    (pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_notsent_lowat"}]}), BASELINE, 36, 37),
    (pod(container(seLinuxOptions={"type": "container_engine_t"})), BASELINE, 30, 31),
    (pod(container(procMount="Unmasked"), hostUsers=False), BASELINE, 34, 35),
    (pod(good(runAsNonRoot=None, runAsUser=0), hostUsers=False), RESTRICTED, 34, 35),
    (pod(container(runAsNonRoot=True), os={"name": "windows"}), RESTRICTED, 24, 25),
    (pod(annotations={"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}), BASELINE, 18, 19),
]


@pytest.mark.parametrize(("obj", "level", "refused", "allowed"), RELAXED)
def test_a_check_is_relaxed_with_its_version(obj: dict[str, Any], level: str, refused: int, allowed: int) -> None:
    assert found(obj, level, refused) != ""
    assert found(obj, level, allowed) == ""


def test_unmasked_proc_stays_refused_under_the_restricted_standard() -> None:
    obj = pod(good(procMount="Unmasked"), hostUsers=False)
    assert found(obj, RESTRICTED).startswith("procMount (")


def test_restricted_checks_replace_the_weaker_ones_and_come_last() -> None:
    obj = pod(container(capabilities={"add": ["BPF"]}, privileged=True), volumes=[{"name": "h", "hostPath": {}}])
    assert in_short(findings(Standard(RESTRICTED), {}, obj["spec"])) == (
        "privileged, allowPrivilegeEscalation != false, unrestricted capabilities, restricted volume types, "
        "runAsNonRoot != true, seccompProfile"
    )
    assert in_short(findings(Standard(BASELINE), {}, obj["spec"])) == (
        "non-default capabilities, hostPath volumes, privileged"
    )
