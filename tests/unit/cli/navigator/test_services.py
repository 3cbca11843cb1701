"""``shoal services`` against a served navigator."""

from __future__ import annotations

import json

from answers_world import Shoal


def test_services_show_how_many_endpoints_are_ready_and_each_of_them(shoal: Shoal) -> None:
    assert ["shop", "web", "ClusterIP", "80", "1/3", "eu-1,us-1"] in shoal("services").rows()
    text = shoal("services", "shop/web").out
    assert "endpoints:  1 of 3 ready" in text
    assert "not ready   web-2   CrashLoopBackOff" in text
    assert [row[2] for row in shoal("services", "--without").rows()[1:]] == ["batch-7", "batch-7", "lonely-0"]
    assert "use NAMESPACE/NAME" in shoal("services", "web").err
    assert json.loads(shoal("services", "shop/web", "-o", "json").out)["readyEndpoints"] == 1
