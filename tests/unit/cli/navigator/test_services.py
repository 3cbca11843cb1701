"""``shoal services`` against a served navigator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

from answers_world import Shoal, a_service


def test_services_show_how_many_endpoints_are_ready_and_each_of_them(shoal: Shoal) -> None:
    assert ["shop", "web", "ClusterIP", "80", "1/3", "eu-1,us-1"] in shoal("services").rows()
    text = shoal("services", "shop/web").out
    assert "endpoints:  1 of 3 ready" in text
    assert "not ready   web-2   CrashLoopBackOff" in text
    assert [row[2] for row in shoal("services", "--without").rows()[1:]] == ["batch-7", "batch-7", "lonely-0"]
    assert "use NAMESPACE/NAME" in shoal("services", "web").err
    assert json.loads(shoal("services", "shop/web", "-o", "json").out)["readyEndpoints"] == 1


def test_watched_services_show_changes_as_they_happen(
    served: Any, spawned: Callable[..., subprocess.Popen[str]]
) -> None:
    table = spawned("services", "-n", "watched", "-w").stdout
    assert table is not None
    assert table.readline() == "no services\n"
    served.change(lambda: served.world.view.put("eu-1", "services", a_service("one", "watched")))
    assert table.readline().split()[:2] == ["NAMESPACE", "NAME"]
    assert table.readline().split()[:2] == ["watched", "one"]
    one = spawned("services", "watched/one", "-w").stdout
    assert one is not None
    assert one.readline().split() == ["service:", "watched/one"]
    served.change(lambda: served.world.view.remove("eu-1", "services", "watched/one"))
    assert table.readline() == "no services\n"
