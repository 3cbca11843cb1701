"""Slices that mirror Endpoints of users."""

from __future__ import annotations

from shoal.controllers.mirroring.plan import is_mirrored, plan_mirror

PORT = {"name": "pg", "port": 5432, "protocol": "TCP"}


def endpoints(*ips, uid="e", labels=None, annotations=None, **subset):
    about = {"name": "db", "namespace": "d", "uid": uid, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": about, "subsets": [{"addresses": [{"ip": ip} for ip in ips], "ports": [PORT], **subset}]}


def stored(piece, name="db-1"):
    return {**piece, "metadata": {**piece["metadata"], "name": name, "uid": name, "resourceVersion": "1"}}


def test_there_is_one_slice_for_each_family_and_set_of_ports():
    found = plan_mirror(endpoints("10.0.0.1", "fd00::1", "10.0.0.2"), []).changes
    assert [(p["addressType"], len(p["endpoints"])) for p in found.creates] == [("IPv4", 2), ("IPv6", 1)]
    assert found.creates[0]["ports"] == [PORT]


def test_what_is_mirrored_already_is_not_written():
    made = stored(plan_mirror(endpoints("10.0.0.1"), []).changes.creates[0])
    assert not plan_mirror(endpoints("10.0.0.1"), [made]).changes
    for other in (endpoints("10.0.0.2"), endpoints("10.0.0.1", labels={"a": "b"}), endpoints("10.0.0.1", annotations={"a": "b"}),
                  endpoints("10.0.0.1", uid="again")):  # fmt: skip
        changes = plan_mirror(other, [made]).changes
        assert [p["metadata"]["name"] for p in changes.updates] == ["db-1"] and not changes.creates


def test_annotations_about_writing_are_not_mirrored():
    notes = {
        "endpoints.kubernetes.io/last-change-trigger-time": "t",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "n": "1",
    }
    assert plan_mirror(endpoints("10.0.0.1", annotations=notes), []).changes.creates[0]["metadata"]["annotations"] == {
        "n": "1"
    }


def test_a_slice_for_other_ports_is_used_again():
    made = stored(plan_mirror(endpoints("10.0.0.1"), []).changes.creates[0])
    changes = plan_mirror(endpoints("10.0.0.1", ports=[{**PORT, "port": 1}]), [made]).changes
    assert [p["metadata"]["name"] for p in changes.updates] == ["db-1"] and not changes.creates and not changes.deletes


def test_empty_endpoints_have_no_slices():
    made = stored(plan_mirror(endpoints("10.0.0.1"), []).changes.creates[0])
    assert plan_mirror({**endpoints(), "subsets": []}, [made]).changes.deletes == (made,)


def test_addresses_beyond_the_limit_are_left_out_and_counted():
    plan = plan_mirror(endpoints(*(f"10.0.0.{n}" for n in range(1, 8)), "nonsense"), [], limit=5)
    assert len(plan.changes.creates[0]["endpoints"]) == 5 and plan.skipped == 3 and plan.invalid == 0


def test_only_what_users_wrote_is_mirrored():
    service, selecting = {"spec": {}}, {"spec": {"selector": {"a": "b"}}}
    assert is_mirrored(endpoints("10.0.0.1"), service)
    assert not is_mirrored(endpoints("10.0.0.1"), selecting) and not is_mirrored(endpoints("10.0.0.1"), None)
    assert not is_mirrored(endpoints("10.0.0.1", labels={"endpointslice.kubernetes.io/skip-mirror": "true"}), service)
    assert not is_mirrored(
        endpoints("10.0.0.1", annotations={"control-plane.alpha.kubernetes.io/leader": "x"}), service
    )
