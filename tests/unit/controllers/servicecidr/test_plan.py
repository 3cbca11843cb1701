"""Ranges that may be removed, and valid records."""

from __future__ import annotations

import pytest

from shoal.controllers.servicecidr.plan import (
    ALLOCATOR,
    FAMILY,
    KEEP,
    MANAGED_BY,
    Fault,
    can_go,
    check_record,
    check_service,
    condition_of_range,
    contains_address,
    overlaps,
    record_of,
    with_range_condition,
)
from shoal.kube.times import format_time

NOW = 1_800_000_000.0


def a_range(name, *cidrs):
    return {"metadata": {"name": name}, "spec": {"cidrs": list(cidrs)}}


def a_record(address, namespace="d", name="s", age_s=3600.0, **parent):
    about = {"name": address, "uid": "u", "creationTimestamp": format_time(NOW - age_s)}
    about["labels"] = {FAMILY: "IPv6" if ":" in address else "IPv4", MANAGED_BY: ALLOCATOR}
    return {
        "metadata": about,
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name, **parent}},
    }


def a_service(*addresses, name="s", age_s=7200.0, **spec):
    about = {"name": name, "namespace": "d", "creationTimestamp": format_time(NOW - age_s)}
    return {
        "metadata": about,
        "spec": {"clusterIP": addresses[0] if addresses else "None", "clusterIPs": list(addresses), **spec},
    }


WIDE, NARROW, OTHER = (
    a_range("wide", "10.0.0.0/16"),
    a_range("narrow", "10.0.1.0/24"),
    a_range("other", "10.9.0.0/24", "fd00::/112"),
)


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.0.1.7", True),
        ("10.0.1.0", False),
        ("10.0.1.255", False),
        ("10.0.2.1", False),
        ("fd00::1", False),
        ("x", False),
    ],
)
def test_an_address_is_in_a_range_unless_it_is_its_edge(address, inside):
    assert contains_address(NARROW, address) == inside


@pytest.mark.parametrize(
    ("cidr", "ranges", "addresses", "goes"),
    [
        (NARROW, [NARROW], [], True),
        (NARROW, [NARROW], ["10.0.1.7"], False),
        (NARROW, [NARROW], ["10.7.0.1"], True),
        (NARROW, [NARROW, WIDE], ["10.0.1.7"], True),
        (WIDE, [NARROW, WIDE], ["10.0.1.7"], True),
        (WIDE, [NARROW, WIDE], ["10.0.1.7", "10.0.2.7"], False),
        (OTHER, [OTHER], ["fd00::5"], False),
    ],
)
def test_a_range_goes_when_no_address_needs_it(cidr, ranges, addresses, goes):
    assert can_go(cidr, ranges, [a_record(address) for address in addresses]) == goes


def test_addresses_that_no_server_gave_out_hold_nothing():
    foreign = a_record("10.0.1.7")
    foreign["metadata"]["labels"] = {}
    assert can_go(NARROW, [NARROW], [foreign])


def test_ranges_overlap_by_family():
    assert overlaps(NARROW, WIDE) and not overlaps(NARROW, OTHER)


def test_a_condition_is_written_only_if_it_changed():
    status = with_range_condition(WIDE, condition_of_range(NOW, blocked=False))
    assert status["conditions"][0]["status"] == "True"
    told = {**WIDE, "status": status}
    assert with_range_condition(told, condition_of_range(NOW + 9, blocked=False)) is None
    blocked = with_range_condition(told, condition_of_range(NOW + 9, blocked=True))["conditions"]
    assert [(c["status"], c["reason"], c["lastTransitionTime"]) for c in blocked] == [
        ("False", "Terminating", format_time(NOW + 9))
    ]


@pytest.mark.parametrize(
    ("record", "parent", "fault"),
    [
        (a_record("10.0.0.5"), None, Fault.NONE),
        (None, None, Fault.NOT_ALLOCATED),
        (a_record("10.0.0.5", resource="pods"), None, Fault.WRONG_REFERENCE),
        (a_record("10.0.0.5", name="gone"), None, Fault.WRONG_REFERENCE),
        (a_record("10.0.0.5", name="t"), a_service("10.0.0.5", name="t"), Fault.DUPLICATE),
        ({**a_record("10.0.0.5"), "metadata": {"name": "10.0.0.5", "labels": {}}}, None, Fault.WRONG_LABELS),
    ],
)
def test_what_is_wrong_with_the_record_of_a_service(record, parent, fault):
    assert check_service(a_service("10.0.0.5"), "10.0.0.5", record, parent, [WIDE]) is fault
    assert check_service(a_service("10.0.0.5"), "10.0.0.5", record, parent, [OTHER]) is Fault.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("record", "service", "reason", "waits"),
    [
        (a_record("10.0.0.5"), a_service("10.0.0.5"), "", False),
        (a_record("10.0.0.5"), None, "IPAddressNotAllocated", False),
        (a_record("10.0.0.5", age_s=10), None, "", True),
        (a_record("10.0.0.5", resource="pods"), None, "IPAddressNotAllocated", False),
        (a_record("10.0.0.5"), a_service("10.0.0.6"), "IPAddressWrongReference", False),
        (a_record("10.0.0.5", age_s=2), a_service("10.0.0.6"), "", True),
        (a_record("10.0.0.5", age_s=20), a_service(type="ExternalName"), "", True),
    ],
)
def test_a_record_without_its_service_goes_but_not_at_once(record, service, reason, waits):
    verdict = check_record(record, service, NOW)
    assert (verdict.reason, verdict.wait_s is not None) == (reason, waits)


def test_records_of_others_are_left_alone():
    foreign = a_record("10.0.0.5")
    foreign["metadata"]["labels"] = {MANAGED_BY: "me"}
    assert check_record(foreign, None, NOW) == KEEP


def test_a_new_record_passes_its_own_check():
    service = a_service("10.0.0.5")
    assert check_service(service, "10.0.0.5", record_of(service, "10.0.0.5"), None, [WIDE]) is Fault.NONE
