"""Decisions about APIServices."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.apiserver.aggregator import plan
from shoal.kube.resources import BUILTIN

REFERENCE = {"name": "ships-api", "namespace": "kube-system"}
VERDICTS = st.builds(
    plan.Verdict,
    st.sampled_from(("True", "False", "Unknown")),
    st.sampled_from(("A", "B")),
    st.sampled_from(("x", "y")),
)


@given(st.lists(VERDICTS, min_size=1, max_size=8))
def test_the_condition_is_the_last_verdict_since_its_status_changed(verdicts: list[plan.Verdict]) -> None:
    api_service: dict[str, Any] = {"status": {"conditions": [{"type": "Other", "status": "True"}]}}
    since, status = 0, ""
    for second, verdict in enumerate(verdicts):
        if verdict.status != status:
            since, status = second, verdict.status
        changed = plan.status_with(api_service, verdict, str(second))
        if changed is not None:
            api_service = {"status": changed}
        assert plan.status_with(api_service, verdict, "later") is None
    condition = plan.condition_of(api_service)
    assert (condition["status"], condition["reason"], condition["message"]) == verdicts[-1]
    assert condition["lastTransitionTime"] == str(since)
    assert {each["type"] for each in api_service["status"]["conditions"]} == {"Other", "Available"}
    assert plan.is_available(api_service) == (verdicts[-1].status == "True")


def test_only_services_with_an_address_in_the_cluster_are_checked_further() -> None:
    assert plan.check_service(REFERENCE, {"spec": {"type": "ExternalName"}}, ()) is None
    verdict = plan.check_service(REFERENCE, {"spec": {"type": "ClusterIP"}}, ())
    assert verdict is not None and verdict.reason == "ServicePortError"


def test_automatic_api_services_are_valid_for_every_built_in_group_version() -> None:
    made = plan.automatic(BUILTIN)
    assert set(made) == {f"{r.version}.{r.group}" for r in BUILTIN} - {"v1.apiregistration.k8s.io"}
    for each in made.values():
        spec = each["spec"]
        assert 0 < spec["groupPriorityMinimum"] <= 20_000 and 0 < spec["versionPriority"] <= 1000


def test_what_users_own_is_never_changed_or_removed() -> None:
    stored = {"metadata": {"name": "v1.apps"}, "spec": {"group": "apps"}}
    wanted = plan.automatic(BUILTIN)["v1.apps"]
    for starting in (True, False):
        assert not plan.is_wrong(stored, wanted, starting=starting)
        assert not plan.is_left_over(stored, starting=starting)
    automatic = {**stored, "metadata": {"labels": {plan.AUTOMANAGED: plan.ON_START}}}
    assert plan.is_wrong(automatic, wanted, starting=True) and not plan.is_wrong(automatic, wanted, starting=False)
    assert plan.is_left_over(automatic, starting=True) and not plan.is_left_over(automatic, starting=False)
