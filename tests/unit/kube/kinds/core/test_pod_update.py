"""Only a few fields of a pod can change; the status and two subresources have rules of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.kube.kinds.core.pod import POD
from shoal.kube.kinds.core.pod_update import prepare_ephemeral_containers, prepare_resize
from shoal.kube.objects import Obj

Edited = Callable[[Obj, Obj], Obj]

OLD: Obj = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "c", "image": "a:1", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
        ],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "nodeName": "n1",
    },
    "status": {"phase": "Running", "qosClass": "Burstable"},
}
POD.default(OLD)
GATED: Obj = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "a:1"}],
        "schedulingGates": [{"name": "a"}, {"name": "b"}],
        "nodeSelector": {"x": "1"},
    },
}
POD.default(GATED)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
C0 = "spec/containers/0"


def update(old: Obj, new: Obj) -> list[str]:
    POD.default(new)
    POD.prepare_update(new, old)
    return [str(error) for error in POD.validate_update(new, old)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {f"{C0}/image": "a:2"},
        {"spec/activeDeadlineSeconds": 10},
        {"spec/tolerations/1": {"key": "b", "operator": "Exists"}},
        {"spec/tolerations/0/tolerationSeconds": 9},
        {"metadata/labels": {"a": "b"}},
        {"status": {}},
    ],
)
def test_what_may_change_changes(changes: Obj, edited: Edited) -> None:
    assert update(OLD, edited(OLD, changes)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec/containers/1": {"name": "d", "image": "x"}}, "spec.containers: Forbidden: pod updates may not add or remove containers"),
        ({f"{C0}/command": ["x"]}, "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"),
        ({"spec/nodeName": "n2"}, "spec: Forbidden: pod updates may not change fields other than "),
        ({"spec/restartPolicy": "Never"}, "spec: Forbidden: pod updates may not change fields other than "),
        ({f"{C0}/resources/requests/cpu": "500m"}, "spec: Forbidden: pod updates may not change fields other than "),
        ({"spec/tolerations": []}, "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"),
        ({"spec/schedulingGates": [{"name": "g"}]}, "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"),
        ({"spec/activeDeadlineSeconds": -1}, "spec.activeDeadlineSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive"),
        ({"metadata/annotations": {"kubernetes.io/config.mirror": "x"}}, "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"),
    ],
)  # fmt: skip
def test_what_may_not_change_is_refused(changes: Obj, expected: str, edited: Edited) -> None:
    assert update(OLD, edited(OLD, changes))[0].startswith(expected)


def test_a_deadline_only_comes_closer(edited: Edited) -> None:
    old = edited(OLD, {"spec/activeDeadlineSeconds": 10})
    assert update(old, edited(old, {"spec/activeDeadlineSeconds": 5})) == []
    assert update(old, edited(old, {"spec/activeDeadlineSeconds": 11})) == [
        "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"
    ]
    assert update(old, edited(old, {"spec/activeDeadlineSeconds": ...})) == [
        "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"
    ]


def test_a_gated_pod_can_be_narrowed_but_not_widened(edited: Edited) -> None:
    term: Obj = {"matchExpressions": [{"key": "z", "operator": "Exists"}]}
    affinity: Obj = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    assert update(GATED, edited(GATED, {"spec/nodeSelector/y": "2", "spec/schedulingGates": [{"name": "b"}]})) == []
    assert update(GATED, edited(GATED, {"spec/affinity": affinity})) == []
    assert update(GATED, edited(GATED, {"spec/nodeSelector": {"x": "2"}})) == [
        'spec.nodeSelector: Invalid value: {"x":"2"}: only additions to spec.nodeSelector are allowed (no mutations or '
        "deletions)"
    ]
    narrow = edited(GATED, {"spec/affinity": affinity})
    wide = edited(narrow, {f"spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/0": {"matchExpressions": []}})
    assert [text.partition(":")[0] for text in update(narrow, wide)] == [
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
    ]


def test_the_status_survives_a_plain_update(edited: Edited) -> None:
    new = edited(OLD, {"status": ...})
    POD.prepare_update(new, OLD)
    assert new["status"] == OLD["status"]


def status_update(old: Obj, new: Obj) -> list[str]:
    POD.default(new)
    POD.prepare_status(new, old)
    return [str(error) for error in POD.validate_status(new, old)]


def test_a_status_update_keeps_what_old_clients_drop(edited: Edited) -> None:
    old = edited(OLD, {"status/observedGeneration": 3, "metadata/ownerReferences": [{"uid": "u"}]})
    new = edited(OLD, {"status": {"phase": "Running"}, "metadata/ownerReferences": ...})
    assert status_update(old, new) == []
    assert new["status"] == {"phase": "Running", "qosClass": "Burstable", "observedGeneration": 3}
    assert new["metadata"]["ownerReferences"] == [{"uid": "u"}]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status/qosClass": "BestEffort"}, ['status.qosClass: Invalid value: "BestEffort": field is immutable']),
        ({"status/podIP": "1.2.3.4"}, []),
        ({"status/podIP": "1.2.3"}, ['status.podIPs[0]: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
        ({"status/podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}, ['status.podIPs: Invalid value: [{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}]: may specify no more than one IP for each IP family']),
        ({"status/nominatedNodeName": "n3"}, ["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"]),
        ({"status/conditions": [{"type": "a b"}]}, ["status.conditions[0].Type"]),
        ({"status/observedGeneration": -1}, ["status.observedGeneration: Invalid value: -1: must be a non-negative integer"]),
        ({"status/hostIPs": [{"ip": "1.1.1.1"}]}, ['status.hostIPs[0].ip: Invalid value: "1.1.1.1": must be equal to `hostIP`']),
    ],
)  # fmt: skip
def test_status_rules(changes: Obj, expected: list[str], edited: Edited) -> None:
    found = status_update(OLD, edited(OLD, changes))
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("policy", "exit_code", "allowed"),
    [("Always", 0, True), ("OnFailure", 1, True), ("OnFailure", 0, False), ("Never", 1, False)],
)
def test_ended_containers_stay_ended_unless_they_restart(
    policy: str, exit_code: int, allowed: bool, edited: Edited
) -> None:
    ended = [{"name": "c", "state": {"terminated": {"exitCode": exit_code}}}]
    old = edited(OLD, {"status/containerStatuses": ended, "spec/restartPolicy": policy})
    new = edited(old, {"status/containerStatuses": [{"name": "c", "state": {"running": {}}}]})
    expected = (
        []
        if allowed
        else ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    )
    assert status_update(old, new) == expected


def ephemeral(old: Obj, new: Obj) -> list[str]:
    POD.default(new)
    prepare_ephemeral_containers(new, old)
    return [str(error) for error in POD.subresource_validation["ephemeralcontainers"](new, old)]


def test_ephemeral_containers_can_be_added_but_not_changed(edited: Edited) -> None:
    debug: Obj = {"name": "debug", "image": "b:1"}
    new = edited(OLD, {"spec/ephemeralContainers": [debug], "spec/nodeName": "elsewhere"})
    assert ephemeral(OLD, new) == []
    assert new["spec"]["nodeName"] == "n1"
    changed = edited(new, {"spec/ephemeralContainers/0/image": "b:2"})
    assert ephemeral(new, changed)[0].startswith(
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be changed\n'
    )
    assert ephemeral(new, edited(OLD, {})) == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n'
    ]


def resize(old: Obj, new: Obj) -> list[str]:
    POD.default(new)
    prepare_resize(new, old)
    return [str(error) for error in POD.subresource_validation["resize"](new, old)]


def test_resize_changes_cpu_and_memory_only(edited: Edited) -> None:
    new = edited(OLD, {f"{C0}/resources/requests/cpu": "1500m", f"{C0}/image": "z", "spec/nodeName": "x"})
    assert resize(OLD, new) == []
    assert new["spec"]["containers"][0]["image"] == "a:1"
    assert new["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({f"{C0}/resources": {"requests": {"cpu": "1"}}}, ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]),
        ({f"{C0}/resources": {}}, [
            'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]),
        ({f"{C0}/resources/requests/ephemeral-storage": "1"}, ["spec: Forbidden: only cpu and memory resources are mutable"]),
        ({f"{C0}/name": "d"}, ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"]),
        ({"spec/containers/1": {"name": "d", "image": "x"}}, ["spec.containers: Forbidden: containers may not be added or removed on resize"]),
    ],
)  # fmt: skip
def test_other_changes_are_no_resize(changes: Obj, expected: list[str], edited: Edited) -> None:
    assert resize(OLD, edited(OLD, changes)) == expected


def test_neither_prepare_nor_validate_touches_the_old_pod(edited: Edited) -> None:
    before = edited(OLD, {})
    new = edited(OLD, {f"{C0}/resources/requests/cpu": "1500m"})
    resize(OLD, edited(new, {}))
    ephemeral(OLD, edited(new, {"spec/ephemeralContainers": [{"name": "d", "image": "x"}]}))
    update(OLD, edited(new, {}))
    status_update(OLD, edited(new, {"status": {"phase": "Failed"}}))
    assert before == OLD


def test_selectable_fields(edited: Edited) -> None:
    pod = edited(OLD, {"status/podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]})
    found = {field: read(pod) for field, read in POD.selectable.items()}
    assert found["spec.nodeName"] == "n1"
    assert found["status.phase"] == "Running"
    assert found["status.podIP"] == "1.2.3.4"
    assert found["spec.hostNetwork"] == "false"
    assert found["status.nominatedNodeName"] == ""
    assert {field: read({}) for field, read in POD.selectable.items()}["spec.nodeName"] == ""


def test_static_pods_and_windows_pods_have_no_such_subresources(edited: Edited) -> None:
    static = edited(OLD, {"metadata/annotations": {"kubernetes.io/config.mirror": "x"}})
    assert ephemeral(static, edited(static, {})) == ["[]: Forbidden: static pods do not support ephemeral containers"]
    assert resize(static, edited(static, {})) == ["[]: Forbidden: static pods cannot be resized"]
    windows = edited(OLD, {"spec/os": {"name": "windows"}})
    assert resize(windows, edited(windows, {})) == ["[]: Forbidden: windows pods cannot be resized"]
    assert update(static, edited(static, {"metadata/annotations": {}})) == [
        "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"
    ]


def test_app_armor_annotations_are_set_once(edited: Edited) -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    with_profile = edited(OLD, {"metadata/annotations": {key: "unconfined"}})
    assert update(OLD, edited(with_profile, {})) == [
        f"metadata.annotations[{key}]: Forbidden: may not add AppArmor annotations"
    ]
    assert update(with_profile, edited(OLD, {})) == [
        f"metadata.annotations[{key}]: Forbidden: may not remove or update AppArmor annotations"
    ]
    assert update(with_profile, edited(with_profile, {"metadata/labels": {"x": "y"}})) == []


def test_a_negative_grace_may_become_one_second(edited: Edited) -> None:
    old = edited(OLD, {"spec/terminationGracePeriodSeconds": -1})
    assert update(old, edited(old, {})) == []
    assert update(OLD, edited(OLD, {"spec/terminationGracePeriodSeconds": 1}))[0].startswith("spec: Forbidden: ")


def test_images_of_init_containers_change_too(edited: Edited) -> None:
    old = edited(OLD, {"spec/initContainers": [{"name": "i", "image": "x:1"}]})
    POD.default(old)
    assert update(old, edited(old, {"spec/initContainers/0/image": "x:2"})) == []
    assert update(old, edited(old, {"spec/initContainers/0/image": ""})) == [
        "spec.initContainers[0].image: Required value",
        "spec.initContainers[0].image: Required value",
    ]
    assert update(old, edited(old, {"spec/initContainers/0/args": ["a"]}))[0].startswith("spec: Forbidden: ")
    assert resize(old, edited(old, {"spec/initContainers/0/resources": {"requests": {"x": "1"}}}))[-1] == (
        "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable"
    )


def test_resources_of_the_whole_pod_are_kept_and_never_removed(edited: Edited) -> None:
    old = edited(OLD, {"spec/resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}})
    forgetful = edited(old, {"spec/resources": ...})
    assert update(old, forgetful) == []
    assert forgetful["spec"]["resources"] == old["spec"]["resources"]
    assert resize(old, edited(old, {"spec/resources/limits/cpu": "3"})) == []
    assert resize(old, edited(old, {"spec/resources": {"requests": {"cpu": "2"}}})) == [
        "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"
    ]


def test_nodes_that_cannot_resize_are_recognized_by_their_reports(edited: Edited) -> None:
    running = {"name": "c", "state": {"running": {}}}
    new = {f"{C0}/resources/requests/cpu": "1500m"}
    unable = edited(OLD, {"status/containerStatuses": [running]})
    assert resize(unable, edited(unable, new)) == ["spec: Forbidden: Pod running on node without support for resize"]
    able = edited(OLD, {"status/containerStatuses": [{**running, "resources": {}}]})
    assert resize(able, edited(able, new)) == []


def test_addresses_and_claims_in_the_status(edited: Edited) -> None:
    both = edited(OLD, {"status/podIP": "1.2.3.4", "status/podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]})
    assert status_update(OLD, both) == []
    hosts = edited(OLD, {"status/hostIP": "1.1.1.1", "status/hostIPs": [{"ip": "1.1.1.1"}, {"ip": "x"}]})
    assert [text.partition(":")[0] for text in status_update(OLD, hosts)] == ["status.hostIPs[1]", "status.hostIPs"]
    old = edited(OLD, {"status/hostIP": "x", "status/hostIPs": [{"ip": "x"}]})
    assert status_update(old, edited(old, {})) == []
    claims = [{"name": "a", "resourceClaimName": "R"}, {"name": "a"}]
    assert [
        text.partition(":")[0] for text in status_update(OLD, edited(OLD, {"status/resourceClaimStatuses": claims}))
    ] == [
        "status.resourceClaimStatuses[0].name",
        "status.resourceClaimStatuses[0].resourceClaimName",
        "status.resourceClaimStatuses[1].name",
        "status.resourceClaimStatuses[1].name",
    ]


def test_restart_rules_decide_before_policies(edited: Edited) -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    spec = {f"{C0}/restartPolicy": "Never", f"{C0}/restartPolicyRules": [rule]}
    for code, allowed in ((42, True), (1, False)):
        ended = [{"name": "c", "state": {"terminated": {"exitCode": code}}}]
        old = edited(OLD, {**spec, "status/containerStatuses": ended})
        new = edited(old, {"status/containerStatuses": [{"name": "c", "state": {"waiting": {}}}]})
        assert (status_update(old, new) == []) is allowed
        assert status_update(old, edited(old, {})) == []
    everything = edited(
        OLD, {f"{C0}/restartPolicyRules": [{"action": "RestartAllContainers"}], "spec/restartPolicy": "Never"}
    )
    ended_old = edited(
        everything, {"status/containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]}
    )
    assert (
        status_update(ended_old, edited(everything, {"status/containerStatuses": [{"name": "c", "state": {}}]})) == []
    )
    debug = [{"name": "d", "state": {"terminated": {"exitCode": 0}}}]
    with_debug = edited(OLD, {"status/ephemeralContainerStatuses": debug})
    assert (
        len(status_update(with_debug, edited(OLD, {"status/ephemeralContainerStatuses": [{"name": "d", "state": {}}]})))
        == 1
    )


def test_generations_seen_by_conditions_are_kept(edited: Edited) -> None:
    old = edited(OLD, {"status/conditions": [{"type": "Ready", "status": "True", "observedGeneration": 4}]})
    new = edited(OLD, {"status/conditions": [{"type": "Ready", "status": "False"}, {"type": "Initialized"}]})
    assert status_update(old, new) == []
    assert new["status"]["conditions"] == [
        {"type": "Ready", "status": "False", "observedGeneration": 4},
        {"type": "Initialized"},
    ]


def test_warnings_name_what_is_odd_but_valid(edited: Edited) -> None:
    assert POD.warnings(OLD) == []
    odd = edited(OLD, {
        "metadata/name": "a.b",
        f"{C0}/env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
        f"{C0}/ports": [{"containerPort": 1, "name": "p"}, {"containerPort": 1, "name": "p"}],
        f"{C0}/resources": {"limits": {"memory": "100m"}},
        "spec/nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "spec/volumes": [{"name": "g", "gitRepo": {}}],
        "spec/hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}],
        "spec/imagePullSecrets": [{"name": ""}],
        "spec/topologySpreadConstraints": [{"topologyKey": "z"}],
        "metadata/annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""},
    })  # fmt: skip
    starts = [text.partition(": ")[0] for text in POD.warnings(odd)]
    assert starts == [
        "metadata.name",
        "spec.nodeSelector[beta.kubernetes.io/os]",
        "spec.topologySpreadConstraints[0].labelSelector",
        "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]",
        "spec.volumes[0].gitRepo",
        "spec.hostAliases[1].ip",
        "spec.imagePullSecrets[0].name",
        "spec.containers[0].resources.limits[memory]",
        "spec.containers[0].env[2]",
        "spec.containers[0].ports[1]",
        "spec.containers[0].ports[1]",
    ]


def test_all_fields_of_a_pod_are_the_selectable_ones() -> None:
    for pod in (
        {},
        {"spec": {"nodeName": "n", "hostNetwork": True, "serviceAccountName": "s", "restartPolicy": "Never"}},
        {"status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}], "nominatedNodeName": "m"}},
    ):
        assert POD.all_fields is not None
        assert POD.all_fields(pod) == {name: value(pod) for name, value in POD.selectable.items()}
