"""Services over all clusters, with the endpoints of each."""

from __future__ import annotations

import pytest
from answers_world import a_service, a_slice, the_world

from shoal.errors import NotFound
from shoal.navigator.answers.services import service, services
from shoal.testing.views import MemoryView, a_cluster

WORLD = the_world()


def test_services_of_one_name_are_one_with_the_addresses_of_each_cluster() -> None:
    page = services(WORLD.view)
    assert [(each["namespace"], each["name"]) for each in page.items] == [("shop", "db"), ("shop", "web")]
    web = page.items[1]
    assert [place["cluster"] for place in web["clusters"]] == ["eu-1", "us-1"]
    assert (web["endpoints"], web["readyEndpoints"], web["ports"], web["types"]) == (3, 1, [80], ["ClusterIP"])
    assert [each["name"] for each in services(WORLD.view, cluster="eu-1", namespace="shop").items] == ["db", "web"]
    assert services(WORLD.view, namespace="lab").items == []


def test_endpoints_that_are_not_ready_are_shown_as_such() -> None:
    found = service(WORLD.view, "shop", "web")
    states = {
        (place["cluster"], each["pod"]): (each["ready"], each["status"])
        for place in found["clusters"]
        for each in place["endpoints"]
    }
    assert states == {
        ("eu-1", "web-1"): (True, "Running"),
        ("eu-1", "web-2"): (False, "CrashLoopBackOff"),
        ("us-1", "web-1"): (False, "CrashLoopBackOff"),
    }
    with pytest.raises(NotFound, match="no cluster has a service 'shop/nothing'"):
        service(WORLD.view, "shop", "nothing")


def test_endpoints_of_a_namesake_in_another_namespace_are_not_its_own() -> None:
    view = MemoryView([a_cluster("c")])
    view.put("c", "services", a_service("web", "one"), a_service("web", "two"))
    view.put("c", "endpointslices", a_slice("web", ("p", True), namespace="two"))
    assert service(view, "one", "web")["clusters"][0]["endpoints"] == []
    assert len(service(view, "two", "web")["clusters"][0]["endpoints"]) == 1


def test_services_come_in_pages() -> None:
    first = services(WORLD.view, limit=1)
    assert (first.total, first.more) == (2, True)
    last = first.items[-1]
    second = services(WORLD.view, limit=1, after=(last["namespace"], last["name"]))
    assert [each["name"] for each in second.items] == ["web"]
    assert not second.more
