"""Thresholds of probes, and their ports."""

from __future__ import annotations

import pytest

from shoal.node.probes.model import ProbeKind, ProbeSeries, port_of, probe_of


def test_thresholds_decide_when_results_count() -> None:
    probe = probe_of({"livenessProbe": {"failureThreshold": 3, "successThreshold": 2}}, ProbeKind.LIVENESS)
    assert probe is not None
    verdicts, series = [], ProbeSeries()
    for success in (True, True, False, False, True, False, False, False, True, True):
        series = series.after(probe, success)
        verdicts.append(series.verdict)
    assert verdicts == [None, True, True, True, True, True, True, False, False, True]


def test_ports_are_found_by_number_and_by_name() -> None:
    container = {"ports": [{"name": "web", "containerPort": 8080}]}
    assert (port_of(80, container), port_of("web", container), port_of("90", container)) == (80, 8080, 90)
    with pytest.raises(ValueError, match="other"):
        port_of("other", container)
