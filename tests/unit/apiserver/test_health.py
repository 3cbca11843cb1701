"""Health endpoints: what decides, what is only shown, and the counts at /metrics/slis."""

from __future__ import annotations

import pytest

from shoal.apiserver.health import HealthChecks
from shoal.errors import NotFound
from shoal.testing.loops import stalled_loop
from shoal.testing.servers import local_server


def test_a_failing_check_fails_its_endpoints_and_is_named() -> None:
    checks = HealthChecks()
    checks.add("ping", str)
    checks.add("store", lambda: "the disk is full", ("readyz",))
    assert checks.ask("livez") == (True, "ok")
    good, text = checks.ask("readyz")
    assert not good and text == "[+]ping ok\n[-]store failed: the disk is full\nreadyz check failed\n"
    assert checks.ask("readyz", excluded=["store"]) == (True, "ok")
    assert checks.ask("readyz/ping", verbose=True) == (True, "[+]ping ok\nreadyz/ping check passed\n")
    with pytest.raises(NotFound, match="health check store not found"):
        checks.ask("livez/store")


def test_parts_answer_under_their_names_and_do_not_decide() -> None:
    checks = HealthChecks()
    checks.add("ping", str)
    problems = {"a": "starting", "b": ""}
    checks.add_part("kubelet", lambda: problems["a"])
    checks.add_part("kubelet", lambda: problems["b"])
    assert checks.ask("readyz") == (True, "ok")
    assert checks.ask("readyz/kubelet") == (False, "[-]kubelet failed: starting\nreadyz/kubelet check failed\n")
    assert b'kubernetes_healthcheck{name="kubelet",type="readyz"} 0.0' in checks.metrics.render()
    problems["a"] = ""
    assert checks.ask("readyz/kubelet") == (True, "ok")
    text = checks.metrics.render().decode()
    assert 'kubernetes_healthchecks_total{name="kubelet",status="error",type="readyz"} 1.0' in text
    assert 'kubernetes_healthchecks_total{name="kubelet",status="success",type="readyz"} 1.0' in text
    assert 'kubernetes_healthcheck{name="kubelet",type="readyz"} 1.0' in text


async def test_the_server_reports_its_checks_as_service_level_indicators() -> None:
    async with local_server() as server:
        assert (await server.call("GET", "/readyz?verbose")).body == (
            b"[+]ping ok\n[+]store ok\n[+]boot ok\nreadyz check passed\n"
        )
        text = (await server.call("GET", "/metrics/slis")).body.decode()
        assert 'kubernetes_healthcheck{name="store",type="livez"} 1.0' in text
        assert 'kubernetes_healthchecks_total{name="store",status="success",type="readyz"} 1.0' in text
        await server.server.core.store.stop()
        answer = await server.call("GET", "/livez")
        assert answer.status == 500 and b"[-]store failed: it is closed" in answer.body
        assert "/metrics/slis" in (await server.get("/"))["paths"]


async def test_a_loop_that_stays_down_fails_livez_and_not_readyz() -> None:
    async with local_server() as server, stalled_loop("housekeeping/jobs"):
        answer = await server.call("GET", "/livez")
        assert answer.status == 500 and b"[-]loops failed: housekeeping/jobs: down for" in answer.body
        assert (await server.call("GET", "/readyz")).status == 200
