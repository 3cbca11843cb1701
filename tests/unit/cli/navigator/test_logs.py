"""``shoal logs`` against a served navigator."""

from __future__ import annotations

from answers_world import Shoal, World


def test_logs_of_one_pod_are_plain_and_those_of_an_app_have_a_prefix(shoal: Shoal) -> None:
    assert shoal("logs", "web-2").out == "web-2 line 0\nweb-2 line 1\nweb-2 line 2\n"
    ran = shoal("logs", "shopfront", "--tail", "1")
    assert sorted(ran.out.splitlines()) == [
        "eu-1/web-1 | web-1 line 2", "eu-1/web-2 | web-2 line 2", "us-1/web-1 | web-1 line 2",
    ]  # fmt: skip
    assert shoal("logs", "shopfront", "--cluster", "us-1", "--tail", "1").out == "web-1 line 2\n"


def test_a_kind_before_the_name_is_understood(shoal: Shoal) -> None:
    assert shoal("logs", "pod/web-2").out == shoal("logs", "web-2").out
    assert sorted(shoal("logs", "app/shopfront").out.splitlines()) == sorted(
        shoal("logs", "shopfront").out.splitlines()
    )
    assert shoal("logs", "deployment/web").code == 0


def test_logs_are_those_of_the_apps_container_and_not_of_the_proxy(shoal: Shoal, served: tuple[World, str]) -> None:
    shoal("logs", "web-2")
    assert served[0].edges.asked[-1][1].container == "main"  # type: ignore[attr-defined]
    shoal("logs", "web-2", "-c", "istio-proxy", "--since", "10m")
    request = served[0].edges.asked[-1][1]
    assert (request.container, request.since_seconds) == ("istio-proxy", 600)  # type: ignore[attr-defined]


def test_a_pod_whose_log_cannot_be_read_does_not_hide_the_others(shoal: Shoal, served: tuple[World, str]) -> None:
    view = served[0].view
    obj = {"metadata": {"name": "web-9", "namespace": "shop", "labels": {"shoal.dev/deployment": "dep-2"}}}
    view.put("us-2", "pods", obj)
    try:
        ran = shoal("logs", "shopfront", "--tail", "1")
    finally:
        view.remove("us-2", "pods", "shop/web-9")
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 3
    assert "us-2/web-9: no edge is connected" in ran.err


def test_an_unknown_name_is_reported_with_similar_names(shoal: Shoal) -> None:
    assert (
        shoal("logs", "lonely").err
        == "error: no pod, workload or app 'lonely' found; did you mean lab/lonely-0 (us-2)?\n"
    )


def test_an_app_is_found_by_project_environment_and_name(shoal: Shoal) -> None:
    expected = sorted(shoal("logs", "shopfront", "--tail", "1").out.splitlines())
    assert len(expected) == 3
    assert sorted(shoal("logs", "demo/live/shopfront", "--tail", "1").out.splitlines()) == expected
    assert shoal("logs", "demo/live/shopfront", "--cluster", "us-1", "--tail", "1").out == "web-1 line 2\n"
    assert "no pod, workload or app 'demo/test/shopfront' found" in shoal("logs", "demo/test/shopfront").err
    assert "use PROJECT/ENVIRONMENT/APP" in shoal("logs", "demo//shopfront").err
