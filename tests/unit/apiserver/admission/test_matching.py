"""Which writes a configuration is about, against a reference that asks every rule every time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.admission.matching import Match
from shoal.apiserver.admission.model import Admission
from shoal.apiserver.registry import Registry, Served
from shoal.apiserver.user import User
from shoal.errors import NotFound
from shoal.kube import labels

REGISTRY = Registry()
PODS = ("", "v1", "pods")
NAMESPACES = ("", "v1", "namespaces")
HPA_1, HPA_2 = ("autoscaling", "v1", "horizontalpodautoscalers"), ("autoscaling", "v2", "horizontalpodautoscalers")
EVENTS, NEW_EVENTS = ("", "v1", "events"), ("events.k8s.io", "v1", "events")


def served(seen: tuple[str, str, str]) -> Served:
    found = REGISTRY.get(*seen)
    assert found is not None
    return found


def admission(
    seen: tuple[str, str, str] = PODS, operation: str = "CREATE", subresource: str = "", *, name: str = "a",
    namespace: str = "default", new: dict[str, str] | None = None, old: dict[str, str] | None = None,
) -> Admission:  # fmt: skip
    kind = served(seen)
    return Admission(
        operation, kind, subresource, namespace if kind.resource.namespaced else "", name, User("ann"),
        None if new is None else {"metadata": {"name": name, "labels": new}},
        None if old is None else {"metadata": {"name": name, "labels": old}},
        {}, False, [],
    )  # fmt: skip


def rule(
    groups: list[str], versions: list[str], resources: list[str], operations: tuple[str, ...] = ("*",), **more: Any
) -> dict[str, Any]:
    return {
        "apiGroups": groups,
        "apiVersions": versions,
        "resources": resources,
        "operations": list(operations),
        **more,
    }


def asked(match: Match, write: Admission, namespaces: dict[str, dict[str, str]] | None = None) -> Any:
    return match.matches(write, REGISTRY, (namespaces or {"default": {}}).get)


def policy(*rules: dict[str, Any], **more: Any) -> Match:
    return Match.of_policy({"resourceRules": list(rules), "matchPolicy": "Equivalent", **more})


@pytest.mark.parametrize(
    ("resource", "subresource", "taken"),
    [
        ("pods", "", True), ("pods", "status", False), ("*", "", True), ("*", "status", False), ("*/*", "", True),
        ("*/*", "exec", True), ("pods/*", "", True), ("pods/*", "status", True), ("*/status", "status", True),
        ("*/status", "", False), ("pods/exec", "exec", True), ("nodes/*", "status", False),
    ],
)  # fmt: skip
def test_a_resource_is_named_with_or_without_its_subresources(resource: str, subresource: str, taken: bool) -> None:
    match = policy(rule([""], ["v1"], [resource]))
    assert (asked(match, admission(subresource=subresource, new={})) == PODS) is taken
    assert match.could(served(PODS), "CREATE", subresource, REGISTRY) is taken


def test_webhooks_without_rules_see_nothing_and_policies_everything() -> None:
    assert asked(Match.of_webhook({"rules": []}), admission(new={})) is None
    assert asked(Match.of_policy(None), admission(new={})) == PODS
    assert asked(Match.of_policy({}), admission(subresource="exec", operation="CONNECT")) == PODS


def test_an_equivalent_version_is_seen_in_the_version_asked_for_by_the_rule() -> None:
    rules = rule(["autoscaling"], ["v1"], ["horizontalpodautoscalers"])
    write = admission(HPA_2, new={})
    assert asked(policy(rules), write) == HPA_1
    assert asked(policy(rules, matchPolicy="Exact"), write) is None
    assert asked(policy(rule(["events.k8s.io"], ["v1"], ["events"])), admission(EVENTS, new={})) == NEW_EVENTS


def test_the_version_of_the_request_is_preferred_whatever_the_order_of_rules() -> None:
    rules = [rule(["autoscaling"], [version], ["horizontalpodautoscalers"]) for version in ("v1", "v2")]
    assert asked(policy(*rules), admission(HPA_2, new={})) == HPA_2
    assert asked(policy(*rules), admission(HPA_1, new={})) == HPA_1


def test_excluding_rules_win_also_through_an_equivalent_version() -> None:
    everything = rule(["*"], ["*"], ["*"])
    match = policy(everything, excludeResourceRules=[rule(["autoscaling"], ["v1"], ["horizontalpodautoscalers"])])
    assert asked(match, admission(HPA_2, new={})) is None
    assert not match.could(served(HPA_2), "CREATE", "", REGISTRY)
    assert asked(match, admission(new={})) == PODS
    named = policy(everything, excludeResourceRules=[rule([""], ["v1"], ["pods"], resourceNames=["a"])])
    assert asked(named, admission(new={})) is None
    assert asked(named, admission(name="b", new={})) == PODS
    assert named.could(served(PODS), "CREATE", "", REGISTRY)


def test_names_narrow_a_rule_down() -> None:
    match = policy(rule([""], ["v1"], ["pods"], resourceNames=["a"]), rule([""], ["*"], ["pods"], ("DELETE",)))
    assert asked(match, admission(new={})) == PODS
    assert asked(match, admission(name="b", new={})) is None
    assert asked(match, admission(name="b", operation="DELETE", old={})) == PODS


def test_scope_distinguishes_namespaced_and_cluster_objects_and_namespaces_are_cluster_objects() -> None:
    for scope, seen, taken in (
        ("Namespaced", PODS, True), ("Namespaced", NAMESPACES, False), ("Cluster", PODS, False),
        ("Cluster", NAMESPACES, True), ("*", PODS, True), ("*", NAMESPACES, True),
    ):  # fmt: skip
        match = policy(rule([""], ["v1"], ["*"], scope=scope))
        assert (asked(match, admission(seen, new={})) is not None) is taken
        assert match.could(served(seen), "CREATE", "", REGISTRY) is taken


def test_the_object_selector_looks_at_the_object_and_at_what_it_was() -> None:
    match = policy(rule([""], ["v1"], ["pods"]), objectSelector={"matchLabels": {"a": "b"}})
    assert asked(match, admission(new={"a": "b"})) == PODS
    assert asked(match, admission(operation="UPDATE", new={}, old={"a": "b"})) == PODS
    assert asked(match, admission(operation="DELETE", old={"a": "b"})) == PODS
    assert asked(match, admission(operation="UPDATE", new={}, old={})) is None
    absent = policy(
        rule([""], ["v1"], ["pods"]), objectSelector={"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    )
    assert asked(absent, admission(operation="CONNECT", subresource="")) is None  # nothing to select


def test_the_namespace_selector_never_exempts_cluster_objects() -> None:
    match = policy(rule(["*"], ["*"], ["*"]), namespaceSelector={"matchLabels": {"env": "prod"}})
    namespaces = {"default": {}, "live": {"env": "prod"}}
    assert asked(match, admission(new={}), namespaces) is None
    assert asked(match, admission(namespace="live", new={}), namespaces) == PODS
    assert asked(match, admission(("", "v1", "nodes"), new={}), namespaces) is not None
    with pytest.raises(NotFound, match='namespaces "gone" not found'):
        asked(match, admission(namespace="gone", new={}), namespaces)


def test_a_namespace_is_judged_by_its_own_labels_and_its_deletion_by_those_it_has() -> None:
    match = policy(rule([""], ["v1"], ["*", "*/finalize"]), namespaceSelector={"matchLabels": {"env": "prod"}})
    namespaces = {"live": {"env": "prod"}, "other": {}}
    assert asked(match, admission(NAMESPACES, name="fresh", new={"env": "prod"}), namespaces) == NAMESPACES
    assert asked(match, admission(NAMESPACES, "UPDATE", name="live", new={}, old={"env": "prod"}), namespaces) is None
    assert asked(match, admission(NAMESPACES, "DELETE", name="live", old={}), namespaces) == NAMESPACES
    assert asked(match, admission(NAMESPACES, "DELETE", name="other", old={"env": "prod"}), namespaces) is None
    assert asked(match, admission(NAMESPACES, "UPDATE", "finalize", name="live", new={}), namespaces) == NAMESPACES


def test_a_missing_namespace_does_not_fail_configurations_for_other_resources() -> None:
    match = policy(rule(["apps"], ["v1"], ["*"]), namespaceSelector={"matchLabels": {"env": "prod"}})
    assert asked(match, admission(namespace="gone", new={}), {}) is None


def test_versions_that_a_definition_adds_are_noticed() -> None:
    registry = Registry()
    match = policy(rule([""], ["v1"], ["pods"]))
    kind = registry.get(*PODS)
    assert kind is not None and match.could(kind, "CREATE", "", registry)
    registry.version += 1
    assert match.could(kind, "CREATE", "", registry)


# The reference: every step of the decision spelled out, nothing remembered.


def _rule_takes(each: dict[str, Any], write: Admission, seen: tuple[str, str, str]) -> bool:
    scope = each.get("scope", "*")
    cluster = seen == NAMESPACES or not write.namespace
    if scope == "Namespaced" and cluster or scope == "Cluster" and not cluster:
        return False
    if not any(op in ("*", write.operation) for op in each["operations"]):
        return False
    if not any(group in ("*", seen[0]) for group in each["apiGroups"]):
        return False
    if not any(version in ("*", seen[1]) for version in each["apiVersions"]):
        return False
    for text in each["resources"]:
        name, sub = (text.split("/", 1) + [""])[:2]
        if name in ("*", seen[2]) and sub in ("*", write.subresource):
            return True
    return False


def _name_taken(each: dict[str, Any], write: Admission) -> bool:
    return not each.get("resourceNames") or write.name in each["resourceNames"]


def _decide(rules: list[dict[str, Any]], exact: bool, write: Admission) -> tuple[str, str, str] | None:
    resource = write.served.resource
    own = (resource.group, resource.version, resource.plural)
    for each in rules:
        if _rule_takes(each, write, own) and _name_taken(each, write):
            return own
    if exact:
        return None
    for each in rules:
        for other in REGISTRY:
            found = other.resource
            seen = (found.group, found.version, found.plural)
            if other.key != write.served.key or seen == own:
                continue
            if write.subresource and found.subresource(write.subresource) is None:
                continue
            if _rule_takes(each, write, seen) and _name_taken(each, write):
                return seen
    return None


def reference(match: dict[str, Any], write: Admission, namespaces: dict[str, dict[str, str]]) -> Any:
    exact = match["matchPolicy"] == "Exact"
    wanted = labels.from_object(match["objectSelector"])
    both = [each["metadata"]["labels"] for each in (write.object, write.old) if each is not None]
    if not wanted.everything and not any(map(wanted.matches, both)):
        return None
    if _decide(match["excludeResourceRules"], exact, write) is not None:
        return None
    seen = _decide(match["resourceRules"], exact, write)
    if seen is None:
        return None
    wanted = labels.from_object(match["namespaceSelector"])
    if wanted.everything or not write.namespace and write.served.resource.plural != "namespaces":
        return seen
    if write.served.resource.plural == "namespaces":
        if write.operation in ("CREATE", "UPDATE") and not write.subresource:
            return seen if wanted.matches(write.object["metadata"]["labels"] if write.object else {}) else None
        found = namespaces.get(write.name)
    else:
        found = namespaces.get(write.namespace)
    if found is None:
        return "not found"
    return seen if wanted.matches(found) else None


def some(*choices: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(choices), min_size=1, max_size=2, unique=True)


LABELS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2)
SELECTOR = st.one_of(st.just({}), st.builds(lambda found: {"matchLabels": found}, LABELS))
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "operations": some("*", "CREATE", "UPDATE", "DELETE"),
            "apiGroups": some("*", "", "autoscaling", "events.k8s.io"),
            "apiVersions": some("*", "v1", "v2"),
            "resources": some(
                "*", "*/*", "pods", "pods/*", "*/status", "horizontalpodautoscalers", "events", "namespaces"
            ),
            "scope": st.sampled_from(["*", "Cluster", "Namespaced"]),
        },
        optional={"resourceNames": some("x", "y")},
    ),
    min_size=1,
    max_size=3,
)
MATCHES = st.fixed_dictionaries(
    {
        "resourceRules": RULES, "excludeResourceRules": st.one_of(st.just([]), RULES),
        "matchPolicy": st.sampled_from(["Exact", "Equivalent"]), "objectSelector": SELECTOR,
        "namespaceSelector": SELECTOR,
    }
)  # fmt: skip
WRITES = st.builds(
    lambda seen, operation, subresource, name, namespace, new, old: admission(
        seen, operation, subresource, name=name, namespace=namespace,
        new=None if operation == "DELETE" else new, old=None if operation == "CREATE" else old,
    ),
    st.sampled_from([PODS, NAMESPACES, HPA_1, HPA_2, EVENTS, NEW_EVENTS]), st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    st.sampled_from(["", "", "status"]), st.sampled_from(["x", "y", "z"]), st.sampled_from(["x", "y", "gone"]),
    LABELS, LABELS,
)  # fmt: skip


@given(MATCHES, st.lists(WRITES, min_size=1, max_size=3), st.dictionaries(st.sampled_from(["x", "y"]), LABELS))
@settings(max_examples=600, deadline=None)
def test_every_decision_is_that_of_the_reference(
    spec: dict[str, Any], writes: list[Admission], namespaces: dict[str, dict[str, str]]
) -> None:
    match = Match.of_policy(spec)
    for write in writes:
        expected = reference(spec, write, namespaces)
        try:
            found = match.matches(write, REGISTRY, namespaces.get)
        except NotFound:
            found = "not found"  # type: ignore[assignment]
        assert found == expected
        if expected is not None:
            assert match.could(write.served, write.operation, write.subresource, REGISTRY)
