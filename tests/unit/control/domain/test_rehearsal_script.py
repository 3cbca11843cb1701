"""The script of a rehearsal is read whole, and each fault has a field and a fix."""

from __future__ import annotations

from shoal.control.domain.rehearsal_script import read_script
from shoal.control.rollout.rehearsal import PlayedFault
from shoal.control.rollout.rehearsed_region import Pace


def test_a_list_is_one_of_faults_and_an_object_has_the_pace_too() -> None:
    faults = [
        {"at": "3m", "region": "us", "errors": "5%", "p99": "800ms", "p50": "0s"},
        {"at": "4m", "lost": True, "crash": False, "noSamples": True},
        {"at": "1h", "approve": True},
    ]
    found, errors = read_script(faults, ("us", "eu"))
    assert errors == []
    assert found.faults == (
        PlayedFault(at_s=180, region="us", errors=0.05, latency_ms={0.99: 800, 0.5: 0}),
        PlayedFault(at_s=240, lost=True, crash=False, no_samples=True),
        PlayedFault(at_s=3600, approve=True),
    )
    whole, errors = read_script(
        {"faults": faults, "ready": "30s", "acknowledge": "1s", "requestsPerSecond": 5}, ("us",)
    )
    assert (whole.faults, errors) == (found.faults, [])
    assert whole.pace == Pace(ready_s=30, acknowledge_s=1, requests_per_s=5)


def test_what_is_wrong_is_named_with_the_fix() -> None:
    _, errors = read_script([{"region": "mars", "erors": "1%", "errors": 5}, {"at": "soon"}], ("us",))
    found = {each.field: each.body for each in errors}
    assert set(found) == {
        "faults[0].at", "faults[0].region", "faults[0].erors", "faults[0].errors", "faults[1].at"
    }  # fmt: skip
    assert "use one of us" in found["faults[0].region"] and "did you mean errors?" in found["faults[0].erors"]
    assert read_script("x", ())[1][0].field == ""
