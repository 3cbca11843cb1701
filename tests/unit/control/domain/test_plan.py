"""Revisions: the same template is the same revision, and what changes in place never makes a new one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.domain.kinds.app import AppSpec, Autoscaling, Overrides, PlacementRules, Readiness, RegionSpec
from shoal.control.domain.plan import (
    MAX_CLUSTER_NAME,
    cluster_name,
    containers_of,
    differences,
    needed_regions,
    plan_app,
    recorded_template,
    region_state,
    spec_of_revision,
    template_hash,
    template_of,
)
from shoal.control.domain.specs import read_app_spec
from shoal.kube.names import is_dns1035_label

names = st.sampled_from(["eu", "us", "ap"])
regions = st.builds(
    RegionSpec,
    region=names,
    replicas=st.integers(0, 5),
    autoscaling=st.none() | st.builds(Autoscaling, min=st.integers(1, 2), max=st.integers(2, 4)),
    overrides=st.builds(Overrides, env=st.dictionaries(st.sampled_from("AB"), st.text(max_size=2), max_size=2)),
)
topologies = st.lists(regions, max_size=3, unique_by=lambda row: row.region).map(tuple)
apps = st.builds(
    AppSpec,
    image=st.sampled_from(["a:1", "a:2"]),
    env=st.dictionaries(st.sampled_from("ABC"), st.text(max_size=3), max_size=3),
    args=st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple),
    port=st.sampled_from([80, 8080]),
    topology=topologies,
)


def planned(spec: AppSpec, before: AppSpec) -> Any:
    rows = {row.region: region_state(before, row) for row in before.topology}
    containers = {region: containers_of(template_of(before), state.overrides) for region, state in rows.items()}
    return plan_app(spec, template_hash(template_of(before)), rows, containers)


@settings(max_examples=200, deadline=None)
@given(
    spec=apps,
    topology=topologies,
    desired=st.sampled_from(["running", "stopped"]),
    drift=st.sampled_from(["correct", "report"]),
)
def test_a_change_in_place_never_makes_a_revision(spec: AppSpec, topology: Any, desired: str, drift: str) -> None:
    own = {row.region: row.overrides for row in spec.topology}
    topology = tuple(replace(row, overrides=own.get(row.region, row.overrides)) for row in topology)
    changed = replace(
        spec, topology=topology, desired=desired, drift=drift, autoscaling=Autoscaling(1, 9), readiness=Readiness("all"),
        placement=PlacementRules(labels={"a": "b"}, cel="true", spread="apart"),
    )  # fmt: skip
    assert template_hash(template_of(changed)) == template_hash(template_of(spec))
    assert not planned(changed, spec).new_revision


@settings(max_examples=200, deadline=None)
@given(before=apps, after=apps)
def test_a_revision_is_made_exactly_when_the_template_or_the_containers_of_a_region_differ(
    before: AppSpec, after: AppSpec
) -> None:
    same = template_of(before) == template_of(after)
    old, new = (
        {row.region: containers_of(template_of(spec), row.overrides.as_json()) for row in spec.topology}
        for spec in (before, after)
    )
    alike = all(old[region] == new[region] for region in old.keys() & new.keys())
    assert planned(after, before).new_revision == (not same or not alike)
    assert (template_hash(template_of(before)) == template_hash(template_of(after))) == same


@settings(max_examples=200, deadline=None)
@given(before=apps, after=apps)
def test_the_spec_of_an_earlier_revision_can_be_had_again(before: AppSpec, after: AppSpec) -> None:
    rows = {row.region: row for row in before.topology}
    kept = tuple(replace(row, overrides=rows[row.region].overrides) for row in after.topology if row.region in rows)
    stored = {
        "image": after.image,
        "topology": [{"region": row.region, "replicas": 7} for row in kept],
        "drift": "report",
    }
    back = read_app_spec(spec_of_revision(stored, recorded_template(before)))
    assert template_of(back) == template_of(before)
    assert {row.region: row.overrides for row in back.topology} == {row.region: row.overrides for row in kept}
    assert (back.drift, {row.replicas for row in back.topology}) == ("report", {7} if kept else set())


@settings(max_examples=200, deadline=None)
@given(before=apps, after=apps)
def test_every_region_is_added_changed_kept_or_removed_exactly_once(before: AppSpec, after: AppSpec) -> None:
    plan = planned(after, before)
    found = [*plan.add, *plan.change, *plan.keep, *plan.remove]
    assert sorted(found) == sorted({row.region for row in (*before.topology, *after.topology)})
    old, new = ({row.region for row in spec.topology} for spec in (before, after))
    assert set(plan.add) == new - old
    assert set(plan.remove) == old - new


@given(spec=apps)
def test_applying_the_same_again_does_nothing(spec: AppSpec) -> None:
    plan = planned(spec, spec)
    assert not plan.new_revision
    assert (plan.add, plan.change, plan.remove) == ((), (), ())


def test_the_same_meaning_written_differently_is_the_same_template() -> None:
    one = read_app_spec({"image": "a", "resources": {"cpu": "1", "memory": "1Gi"}, "env": {"A": "1", "B": "2"}})
    two = read_app_spec(
        {"env": {"B": "2", "A": "1"}, "image": "a", "port": 8080, "resources": {"memory": "1024Mi", "cpu": "1000m"}}
    )
    assert template_hash(template_of(one)) == template_hash(template_of(two))


def test_what_pods_are_made_of_makes_a_revision() -> None:
    base = {"image": "a"}
    for change in (
        {"image": "b"}, {"command": ["x"]}, {"args": ["x"]}, {"env": {"A": "1"}}, {"secrets": ["s"]},
        {"resources": {"cpu": "1"}}, {"port": 81}, {"protocol": "h2c"}, {"healthcheck": {"tcp": {}}},
        {"shutdownSignal": "SIGINT"}, {"terminationSeconds": 5}, {"git": {"sha": "abcd"}},
        {"nodeSelector": {"a": "b"}}, {"security": {"capabilities": ["CHOWN"]}}, {"imagePullSecrets": ["hub"]}, {"placement": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
    ):  # fmt: skip
        changed = read_app_spec({**base, **change})
        assert template_hash(template_of(changed)) != template_hash(template_of(read_app_spec(base))), change


def test_a_field_that_earlier_templates_lack_changes_no_hash_and_goes_with_the_revision() -> None:
    plain = {"image": "a", "topology": []}
    for same in ({"security": {}}, {"security": {"seccomp": "RuntimeDefault", "runAsNonRoot": False}}):
        assert template_of(read_app_spec(plain | same)) == template_of(read_app_spec(plain))
    loose = plain | {"security": {"privilegeEscalation": True}}
    assert "security" not in spec_of_revision(loose, recorded_template(read_app_spec(plain)))
    assert spec_of_revision(plain, recorded_template(read_app_spec(loose)))["security"] == loose["security"]


def test_the_rules_of_rendering_are_recorded_and_make_no_other_containers() -> None:
    spec = read_app_spec({"image": "a", "topology": []})
    first, second = recorded_template(spec, 1), recorded_template(spec)
    assert (first["render"], second["render"]) == (1, 2)
    assert containers_of(first, None) == containers_of(second, None) == containers_of(template_of(spec), None)
    assert "render" not in spec_of_revision({"image": "b"}, second)


IN_PLACE = {"topology", "autoscaling", "desired", "drift", "placement", "readiness", "rollout"}


def test_every_field_of_an_app_is_in_the_template_or_known_to_change_in_place() -> None:
    given = {"image": "a", "restarts": 1, "security": {"runAsNonRoot": True}, "imagePullSecrets": ["hub"]}
    given["podLabels"] = {"app": "web"}
    template = set(template_of(read_app_spec(given)))
    for field in fields(AppSpec):
        head, *rest = field.name.split("_")
        named = head + "".join(part.title() for part in rest)
        assert (named in template) != (field.name in IN_PLACE), field.name


@given(
    name=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,58}[a-z0-9])?", fullmatch=True),
    identity=st.lists(st.text(max_size=5), min_size=1, max_size=3),
)
def test_names_in_clusters_are_valid_short_and_determined_by_identity(name: str, identity: list[str]) -> None:
    made = cluster_name(name, *identity)
    assert made == cluster_name(name, *identity)
    assert not is_dns1035_label(made)
    assert len(made) <= MAX_CLUSTER_NAME
    assert made != cluster_name(name, *identity, "other")


def test_one_whole_region_may_be_down_unless_the_app_says_otherwise() -> None:
    assert [needed_regions("allButOne", count) for count in (0, 1, 2, 3, 10)] == [0, 1, 1, 2, 9]
    assert [needed_regions("all", count) for count in (1, 3)] == [1, 3]
    assert [needed_regions(2, count) for count in (1, 2, 5)] == [1, 2, 2]


documents = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(before=documents, after=documents)
def test_differences_are_empty_exactly_for_equals_and_name_what_differs(before: Any, after: Any) -> None:
    found = differences({"spec": before}, {"spec": after})
    assert all(diff.before != diff.after or type(diff.before) is not type(diff.after) for diff in found)
    assert differences(before, before) == []
    if not found:
        assert _pruned(before) == _pruned(after)


def _pruned(value: Any) -> Any:
    """Without fields that are null, which say as little as fields that are not there."""
    if isinstance(value, dict):
        kept = {key: pruned for key, each in value.items() if (pruned := _pruned(each)) is not None}
        return kept or None
    return [_pruned(each) for each in value] if isinstance(value, list) else value
