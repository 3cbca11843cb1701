"""What differs between an object that was applied and the one in the cluster."""

from __future__ import annotations

import copy

import pytest

from shoal.krane.objects.compare import additions, differences, fingerprint, foreign_fields, owns, taken_over

WANT = {
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"a": "1"}},
    "spec": {
        "paused": False,
        "template": {
            "spec": {
                "containers": [{"name": "app", "image": "i:1", "env": [{"name": "A", "value": ""}], "args": ["x"]}]
            }
        },
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}


def live(change=lambda obj: None):
    found = copy.deepcopy(WANT)
    found["metadata"]["uid"] = "u1"
    found["spec"]["progressDeadlineSeconds"] = 600
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["terminationMessagePath"] = "/dev/termination-log"
    del container["env"][0]["value"]
    del found["spec"]["paused"]
    found["status"] = {"replicas": 1}
    change(found)
    return found


def container(obj):
    return obj["spec"]["template"]["spec"]["containers"][0]


def test_the_fingerprint_does_not_depend_on_version_and_request():
    stamped = copy.deepcopy(WANT)
    stamped["metadata"]["annotations"] = {"shoal.dev/version": "main:1:7", "shoal.dev/correlation-id": "deploy-7"}
    assert fingerprint(stamped) == fingerprint(WANT)


def test_what_a_server_adds_or_leaves_out_is_no_difference():
    assert differences(WANT, live()) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda obj: container(obj).update(image="evil"), "spec.template.spec.containers[app].image"),
        (lambda obj: container(obj)["env"].clear(), "spec.template.spec.containers[app].env[A]"),
        (lambda obj: container(obj)["env"][0].update(value="2"), "spec.template.spec.containers[app].env[A].value"),
        (lambda obj: container(obj).update(args=["x", "y"]), "spec.template.spec.containers[app].args"),
        (lambda obj: container(obj).pop("args"), "spec.template.spec.containers[app].args"),
        (lambda obj: obj["metadata"]["labels"].clear(), "metadata.labels.a"),
        (lambda obj: obj["spec"]["tolerations"][0].update(operator="Equal"), "spec.tolerations[0].operator"),
        (lambda obj: obj["spec"].pop("template"), "spec.template"),
    ],
)
def test_what_somebody_changed_is_found_by_its_path(change, path):
    assert differences(WANT, live(change)) == [path]


def managed(fields, manager="kubectl-edit", operation="Update", **more):
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


ADDED = {
    "f:spec": {
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"app"}': {"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}}
                }
            }
        }
    }
}


def with_managed(*entries):
    return live(lambda obj: obj["metadata"].update(managedFields=list(entries)))


def test_what_somebody_added_is_found_once_by_the_item():
    assert additions(WANT, foreign_fields(with_managed(managed(ADDED)))) == [
        "spec.template.spec.containers[app].env[B]"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        managed(ADDED, manager="krane", operation="Apply"),
        managed({"f:spec": {"f:replicas": {}}}, manager="hpa", subresource="scale"),
        managed({"f:status": {"f:replicas": {}}, "f:metadata": {"f:annotations": {"f:x": {}}}}),
        managed(
            {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}}}}}
        ),
        managed({"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"app"}': {"f:image": {}}}}}}}),
    ],
    ids=["ours", "a subresource", "status and annotations", "a restart", "a field that we name too"],
)
def test_what_others_may_do_is_no_addition(entry):
    assert additions(WANT, foreign_fields(with_managed(entry))) == []


def test_fields_taken_over_are_ours_and_nobody_elses():
    ours = managed({"f:spec": {"f:paused": {}}}, manager="krane", operation="Apply")
    status = managed({"f:status": {"f:replicas": {}}}, manager="controller", subresource="status")
    both = managed({**ADDED, "f:metadata": {"f:annotations": {"f:x": {}}}})
    made = taken_over([ours, status, both])
    assert made[0]["fieldsV1"] == {"f:spec": {"f:paused": {}, **ADDED["f:spec"]}}
    assert made[1] == status
    assert made[2]["fieldsV1"] == {"f:metadata": {"f:annotations": {"f:x": {}}}}
    assert ours["fieldsV1"] == {"f:spec": {"f:paused": {}}}, "what was given is left as it was"


def test_whether_we_apply_a_field():
    ours = managed({"f:spec": {"f:replicas": {}}}, manager="krane", operation="Apply")
    assert owns([ours], ("spec", "replicas"))
    assert not owns([ours], ("spec", "paused"))
    assert not owns([{**ours, "manager": "other"}], ("spec", "replicas"))


def test_the_fingerprint_does_not_change_with_the_version_alone():
    marked = copy.deepcopy(WANT)
    marked["metadata"]["annotations"] = {"shoal.dev/version": "main:1:2", "shoal.dev/applied": "x"}
    assert fingerprint(marked) == fingerprint(WANT)
    marked["spec"]["paused"] = True
    assert fingerprint(marked) != fingerprint(WANT)
