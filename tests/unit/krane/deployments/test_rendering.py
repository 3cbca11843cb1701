"""The rules by which revisions are rendered: what an earlier release has rendered stays as it is, byte for byte."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from rendered_states import OWNER, container, full_state, pod_spec, rendered, state

from shoal.errors import Invalid
from shoal.krane.deployments.check import check
from shoal.krane.deployments.render import render
from shoal.krane.deployments.rendering import FIRST, NEWEST, Rendering, rendering_for, rendering_of
from shoal.krane.labels import RENDER
from shoal.wire.fleet.v1 import cluster_pb as pb

SCALED = {"autoscaling": pb.Autoscaling(min=2, max=5, cpu_percent=70, memory_percent=60)}
STATES = {
    "small": state(),
    "full": full_state(),
    "scaled": full_state(**SCALED),
    "no port": state(port=0),
    "stopped": full_state(running=False, **SCALED),
    "killed": state(shutdown_signal="SIGKILL"),
    "by command": full_state(healthcheck=pb.HealthCheck(kind="exec", command=["true"])),
}
REGISTRIES = '{"auths":{}}'
RULES = {1: FIRST, 2: Rendering(2, non_root=True)}


def recorded(version):
    lines = (Path(__file__).parent / f"rendered_version_{version}.jsonl").read_bytes().splitlines()
    return dict(orjson.loads(line) for line in lines)


def objects(name, version):
    given = STATES[name]
    registries = REGISTRIES if version > 1 and given.registries else ""
    values = {"PASSWORD": "hunter2"} if given.secrets else {}
    return list(render(given, OWNER, values, RULES[version], registries=registries).objects)


RESTRICTED = {"metadata": {"name": "shop", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
OPEN = {"metadata": {"name": "shop", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}


def live(**annotations):
    return {"metadata": {"name": "web", "annotations": annotations}}


@pytest.mark.parametrize("name", STATES)
def test_the_first_rules_give_what_releases_before_the_second_ones_wrote(name):
    """The file was written by the code of before there were others."""
    assert orjson.dumps(objects(name, 1)) == orjson.dumps(recorded(1)[name])


@pytest.mark.parametrize("name", STATES)
def test_the_second_rules_stay_as_they_were_released(name):
    """What changes them needs a number and a file of its own: else an upgrade restarts what runs."""
    assert orjson.dumps(objects(name, 2)) == orjson.dumps(recorded(2)[name])


def test_every_number_of_rules_has_a_file():
    assert set(RULES) == set(range(1, NEWEST + 1))


def test_a_new_revision_has_no_capabilities_gains_no_privileges_and_is_filtered():
    made = rendered(state(render=2))
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod_spec(made)["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert made.root["metadata"]["annotations"] == {RENDER: "2"}


def test_an_app_says_what_else_it_may():
    loose = pb.Security(capabilities=["SETUID", "CHOWN"], privilege_escalation=True, unconfined=True)
    made = rendered(state(render=2, security=loose))
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": True,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "SETUID"]},
    }
    assert pod_spec(made)["securityContext"] == {"seccompProfile": {"type": "Unconfined"}}
    strict = rendered(state(render=2, security=pb.Security(run_as_non_root=True, run_as_user=1000)))
    assert pod_spec(strict)["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True, "runAsUser": 1000,
    }  # fmt: skip


def test_where_the_namespace_enforces_restricted_nothing_runs_as_root():
    how = rendering_for(2, RESTRICTED)
    made = render(state(render=2), OWNER, {}, how)
    assert pod_spec(made)["securityContext"]["runAsNonRoot"] is True
    assert rendering_for(2, OPEN) == rendering_for(2, None) == Rendering(2)
    assert rendering_for(1, RESTRICTED) == FIRST, "earlier revisions stay as they are"


@pytest.mark.parametrize("how", [Rendering(2), Rendering(2, non_root=True), FIRST])
def test_what_runs_says_by_which_rules_it_was_rendered(how):
    about = render(state(), OWNER, {}, how).root["metadata"]
    assert rendering_of(live(**about.get("annotations", {}))) == how


def test_rules_of_a_later_release_are_taken_for_the_newest_known():
    assert rendering_for(NEWEST + 5, None).version == NEWEST
    assert rendering_of(live(**{RENDER: f"{NEWEST + 5}"})).version == NEWEST
    for text in ("", "x", "-1", "0"):
        assert rendering_of(live(**{RENDER: text})) == FIRST
    assert rendering_for(0, None) == FIRST


def test_names_and_kinds_do_not_depend_on_the_rules():
    def names(how):
        made = render(full_state(**SCALED), OWNER, {"A": "1"}, how)
        return [(each["kind"], each["metadata"]["name"]) for each in made.objects]

    assert names(FIRST) == names(Rendering(2, non_root=True))


@pytest.mark.parametrize("name", ["CAP_CHOWN", "chown", "", "A B"])
def test_what_is_no_capability_is_refused(name):
    with pytest.raises(Invalid) as refused:
        check(state(security=pb.Security(capabilities=[name])), {})
    assert [each.field for each in refused.value.errors] == ["security.capabilities"]
