"""The steps of claims and volumes, and that they reach an end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.persistentvolume.config import PROVISIONER
from shoal.controllers.persistentvolume.model import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    PROVISIONED_BY,
    SELECTED_NODE,
    AskProvisioner,
    Bind,
    Free,
    Grow,
    Nothing,
    Provision,
    RecordEvent,
    Release,
    Reserve,
    SetPhase,
    WriteStatus,
)
from shoal.controllers.persistentvolume.plan import (
    best_match,
    claim_finalizers,
    claim_step,
    claims_of_pod,
    folder_volume,
    mismatch,
    reclaims,
    volume_step,
)

FOLDERS = {"metadata": {"name": "local"}, "provisioner": PROVISIONER, "volumeBindingMode": "Immediate"}
WAITING = {**FOLDERS, "volumeBindingMode": "WaitForFirstConsumer"}


def a_claim(size="1Gi", *, volume="", notes=None, status=None, storage_class="local", **spec):
    about = {"name": "c", "namespace": "n", "uid": "cu", "resourceVersion": "1", "annotations": notes or {}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    spec |= {"storageClassName": storage_class} | ({"volumeName": volume} if volume else {})
    return {"metadata": about, "spec": spec, "status": status or {"phase": "Pending"}}


def a_volume(name="v", size="1Gi", *, claim=None, notes=None, phase="Available", storage_class="local", **spec):
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, **spec}
    if claim is not None:
        spec["claimRef"] = claim
    about = {"name": name, "uid": name, "annotations": notes or {}}
    return {"metadata": about, "spec": spec, "status": {"phase": phase}}


def ref(uid="cu", name="c"):
    return {"namespace": "n", "name": name} | ({"uid": uid} if uid else {})


BOUND = {BIND_COMPLETED: "yes"}


@pytest.mark.parametrize(
    ("claim", "storage_class", "kind"),
    [
        (a_claim(), FOLDERS, Provision),
        (a_claim(), WAITING, RecordEvent),
        (a_claim(notes={SELECTED_NODE: "node"}), WAITING, Provision),
        (a_claim(), {**FOLDERS, "provisioner": "other.io/x"}, AskProvisioner),
        (a_claim(), None, RecordEvent),
        (a_claim(storage_class=""), None, RecordEvent),
        (a_claim(volume="v"), FOLDERS, Nothing),
    ],
)
def test_a_claim_without_a_volume(claim, storage_class, kind):
    assert isinstance(claim_step(claim, None, (), storage_class), kind)


def test_the_smallest_volume_that_will_do_is_taken_and_a_reserved_one_before_all():
    big, small, tiny = a_volume("big", "3Gi"), a_volume("small", "2Gi"), a_volume("tiny", "1Mi")
    assert best_match(a_claim(), [big, small, tiny], only_reserved=False) is small
    reserved = a_volume("mine", "9Gi", claim=ref(""))
    assert best_match(a_claim(), [small, reserved], only_reserved=True) is reserved
    assert best_match(a_claim(), [small, a_volume("theirs", claim=ref(name="d"))], only_reserved=True) is None
    assert claim_step(a_claim(), None, [big], FOLDERS) == Reserve(big)


def test_what_does_not_fit_is_not_taken():
    claim = a_claim(selector={"matchLabels": {"a": "b"}})
    assert best_match(claim, [a_volume()], only_reserved=False) is None
    assert mismatch(a_claim(), a_volume(storage_class="fast"))
    assert mismatch(a_claim(), a_volume(volumeMode="Block"))
    assert mismatch(a_claim(accessModes=["ReadWriteMany"]), a_volume())
    released = a_volume(phase="Released")
    assert best_match(a_claim(), [released], only_reserved=False) is None


def test_a_claim_and_its_volume_are_bound_step_by_step():
    volume = a_volume(claim=ref())
    assert claim_step(a_claim(), None, [volume], FOLDERS) == Bind(volume)
    bound = a_claim(volume="v", notes=BOUND)
    step = claim_step(bound, volume, (), FOLDERS)
    assert isinstance(step, WriteStatus)
    assert step.status == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert isinstance(claim_step({**bound, "status": step.status}, volume, (), FOLDERS), Nothing)


def test_a_claim_with_a_volume_name_gets_this_volume_or_an_event_with_the_reason():
    claim = a_claim(volume="v")
    assert isinstance(claim_step(claim, a_volume(), (), FOLDERS), Reserve)
    assert isinstance(claim_step(claim, a_volume(claim=ref("")), (), FOLDERS), Reserve)
    assert isinstance(claim_step(claim, a_volume(size="1Mi"), (), FOLDERS), RecordEvent)
    assert isinstance(claim_step(claim, a_volume(claim=ref("other")), (), FOLDERS), RecordEvent)


def test_a_bound_claim_whose_volume_is_gone_is_lost():
    step = claim_step(a_claim(volume="v", notes=BOUND), None, (), FOLDERS)
    assert isinstance(step, WriteStatus)
    assert (step.status, step.reason) == ({"phase": "Lost"}, "ClaimLost")
    stolen = claim_step(a_claim(volume="v", notes=BOUND), a_volume(claim=ref("x")), (), FOLDERS)
    assert isinstance(stolen, WriteStatus)
    assert stolen.reason == "ClaimMisbound"


def test_a_claim_that_wants_more_makes_its_folder_grow():
    mine = a_volume(claim=ref(), notes={PROVISIONED_BY: PROVISIONER})
    assert isinstance(claim_step(a_claim("2Gi", volume="v", notes=BOUND), mine, (), FOLDERS), Grow)


@pytest.mark.parametrize(
    ("volume", "claim", "step"),
    [
        (a_volume(phase=""), None, SetPhase("Available")),
        (a_volume(), None, Nothing()),
        (a_volume(claim=ref("")), None, Nothing()),
        (a_volume(claim=ref()), None, Release()),
        (a_volume(claim=ref("old")), a_claim(), Release()),
        (a_volume(claim=ref()), a_claim(), Nothing()),
        (a_volume(claim=ref()), a_claim(volume="v"), SetPhase("Bound")),
        (a_volume(claim=ref(), phase="Bound"), a_claim(volume="v"), Nothing()),
        (a_volume(claim=ref(), notes={BOUND_BY_CONTROLLER: "yes"}), a_claim(volume="w"), Free()),
        (a_volume(claim=ref(), notes={PROVISIONED_BY: PROVISIONER}), a_claim(volume="w"), Release()),
    ],
)
def test_steps_of_a_volume(volume, claim, step):
    assert volume_step(volume, claim) == step


def test_only_folders_that_are_to_go_with_their_claim_are_removed():
    ours = {PROVISIONED_BY: PROVISIONER}
    assert reclaims(a_volume(notes=ours, persistentVolumeReclaimPolicy="Delete"))
    assert not reclaims(a_volume(notes=ours, persistentVolumeReclaimPolicy="Retain"))
    assert not reclaims(a_volume(persistentVolumeReclaimPolicy="Delete"))


def test_claims_are_protected_while_they_are_in_use():
    claim = a_claim()
    assert claim_finalizers(claim, False) == [CLAIM_PROTECTION]
    claim["metadata"] |= {"finalizers": ["x", CLAIM_PROTECTION], "deletionTimestamp": "2024-01-01T00:00:00Z"}
    assert claim_finalizers(claim, True) == ["x", CLAIM_PROTECTION]
    assert claim_finalizers(claim, False) == ["x"]


def test_a_folder_is_pinned_to_its_node_only_when_that_is_wanted():
    claim = a_claim(notes={SELECTED_NODE: "node-1"})
    assert "nodeAffinity" not in folder_volume(claim, WAITING, "/d/x", pinned=False)["spec"]
    assert "node-1" in str(folder_volume(claim, WAITING, "/d/x", pinned=True)["spec"]["nodeAffinity"])


def test_pods_use_claims_by_name_and_those_that_are_made_for_them():
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "b", "ephemeral": {}},
        {"name": "d"},
    ]
    volumes[1]["ephemeral"] = {"volumeClaimTemplate": {}}
    assert claims_of_pod({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}) == ["c", "p-b"]


SIZES = st.sampled_from(["1Mi", "1Gi", "2Gi", "5Gi"])


@settings(max_examples=150)
@given(SIZES, st.lists(st.tuples(SIZES, st.sampled_from(["local", "fast"]), st.booleans()), max_size=6))
def test_a_match_always_fits_and_none_that_fits_is_smaller(size, found):
    volumes = [
        a_volume(f"v{n}", volume_size, storage_class=name, claim=ref("x", "other") if taken else None)
        for n, (volume_size, name, taken) in enumerate(found)
    ]
    claim = a_claim(size)
    best = best_match(claim, volumes, only_reserved=False)
    fitting = [each for each in volumes if not mismatch(claim, each) and "claimRef" not in each["spec"]]
    assert (best is None) == (not fitting)
    order = ["1Mi", "1Gi", "2Gi", "5Gi"]
    if best is not None:
        assert best in fitting
        smallest = min(order.index(each["spec"]["capacity"]["storage"]) for each in fitting)
        assert order.index(best["spec"]["capacity"]["storage"]) == smallest
