"""Policies as an admission plugin: which writes they match, their cost budget, audit annotations and time limit."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.apiserver import objects
from shoal.apiserver.admission.model import Admission
from shoal.apiserver.admission.policies import validating
from shoal.apiserver.admission.policies.model import VALIDATING, AdmissionPolicy
from shoal.apiserver.admission.policies.service import Policies
from shoal.apiserver.user import User
from shoal.errors import Invalid
from shoal.kube.objects import Obj
from shoal.store import Key, Put
from shoal.testing.servers import LocalServer, local_server

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PODS = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]


async def policy(server: LocalServer, name: str = "p", **spec: Any) -> None:
    spec = {"matchConstraints": {"resourceRules": PODS}, **spec}
    await server.post(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})


async def binding(server: LocalServer, name: str = "b", to: str = "p", **spec: Any) -> None:
    spec = {"policyName": to, "validationActions": ["Deny"], **spec}
    await server.post(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": spec})


def pod(server: LocalServer, obj: Obj | None = None, operation: str = "CREATE") -> Admission:
    served = server.server.core.registry.get("", "v1", "pods")
    assert served is not None
    found = obj or {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}
    return Admission(operation, served, "", "default", "a", User("ann"), found, None, {}, False, [])


def wants(policies: Policies, server: LocalServer, operation: str = "CREATE", subresource: str = "") -> bool:
    return policies.wants_validate(pod(server).served, operation, subresource)


async def test_only_policies_in_force_want_to_see_writes_and_only_those_they_can_match() -> None:
    async with local_server() as server:
        policies = server.server.policies
        await policy(server, validations=[{"expression": "true"}])
        assert not wants(policies, server)
        await binding(server)
        assert wants(policies, server)
        assert not wants(policies, server, "UPDATE") and not wants(policies, server, "CREATE", "exec")
        assert not policies.wants_mutate(pod(server).served, "CREATE", "")
        await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
        assert not wants(policies, server)


async def test_a_binding_that_cannot_match_keeps_a_policy_out() -> None:
    async with local_server() as server:
        await policy(server, validations=[{"expression": "true"}])
        nodes = [{**PODS[0], "resources": ["nodes"]}]
        await binding(server, matchResources={"resourceRules": nodes})
        assert not wants(server.server.policies, server)


async def test_expressions_are_compiled_once_per_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    make = validating.Validation

    def counted(policy: AdmissionPolicy) -> validating.Validation:
        compiled.append(policy.name)
        return make(policy)

    monkeypatch.setattr(validating, "Validation", counted)
    async with local_server() as server:
        await policy(server, validations=[{"expression": "true"}])
        await binding(server)
        policies = server.server.policies
        for _ in range(2):
            await policies.validate(pod(server))
        assert compiled == ["p"]
        path = f"{ADMISSION}/validatingadmissionpolicies/p"
        merge = {"content-type": "application/merge-patch+json"}
        assert (await server.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, merge)).status == 200
        await policies.validate(pod(server))
        assert compiled == ["p"]
        changed = {"spec": {"validations": [{"expression": "1 == 1"}]}}
        assert (await server.call("PATCH", path, changed, merge)).status == 200
        await policies.validate(pod(server))
        assert compiled == ["p", "p"]


async def test_what_is_stored_at_the_start_is_in_force() -> None:
    async with local_server() as server:
        await policy(server, validations=[{"expression": "false"}])
        await binding(server)
        core = server.server.core
        told: list[int] = []
        fresh = Policies(core, lambda: told.append(1), authorizer_decide=server.server.handler.authorizer.decide)
        assert not wants(fresh, server)
        fresh.start()
        assert told and wants(fresh, server)
        with pytest.raises(Invalid):
            await fresh.validate(pod(server))
        fresh.stop()
        await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
        assert wants(fresh, server)  # no longer told


async def test_audit_annotations_have_the_values_of_policies_and_the_failed_validations() -> None:
    async with local_server() as server:
        notes = [
            {"key": "who", "valueExpression": "'by ' + request.userInfo.username + ' with ' + params.metadata.name"},
            {"key": "nothing", "valueExpression": "null"},
            {"key": "blank", "valueExpression": "'  '"},
        ]
        await policy(
            server, validations=[{"expression": "true"}, {"expression": "false", "message": "no"}], auditAnnotations=notes,
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        )  # fmt: skip
        for name in ("one", "two"):
            body = {"metadata": {"name": name, "labels": {"a": "b"}}}
            await server.post("/api/v1/namespaces/default/configmaps", body)
        reference = {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Deny"}
        await binding(server, validationActions=["Audit", "Warn"], paramRef=reference)
        write = pod(server)
        await server.server.policies.validate(write)
        assert write.annotations["p/who"] == "by ann with one, by ann with two"
        failures = orjson.loads(write.annotations.pop("validation.policy.admission.k8s.io/validation_failure"))
        assert failures == 2 * [
            {
                "message": "no", "policy": "p", "binding": "b", "expressionIndex": 1,
                "validationActions": ["Audit", "Warn"],
            }
        ]  # fmt: skip
        assert list(write.annotations) == ["p/who"]
        warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"
        assert write.warnings == [warning, warning]


async def test_a_note_that_fails_denies_whatever_the_binding_asks_for() -> None:
    async with local_server() as server:
        await policy(server, auditAnnotations=[{"key": "k", "valueExpression": "'x' + object.missing"}])
        await binding(server, validationActions=["Audit"])
        with pytest.raises(Invalid, match="resulted in error: no such key: missing"):
            await server.server.policies.validate(pod(server))


HEAVY = "object.spec.n.all(a, object.spec.n.all(b, object.spec.n.all(c, a + b + c >= 0)))"


def numbers(count: int) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"n": list(range(count))}}


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of work are not needed to run out of it."""
    monkeypatch.setattr(validating, "PER_POLICY_LIMIT", 30_000)


@pytest.mark.usefixtures("small_budget")
async def test_all_validations_of_a_policy_share_one_budget() -> None:
    async with local_server() as server:
        await policy(server, validations=[{"expression": HEAVY}] * 2)
        await binding(server)
        policies = server.server.policies
        await policies.validate(pod(server, numbers(8)))
        with pytest.raises(Invalid, match="running out of cost budget, no further validation rules will be run"):
            await policies.validate(pod(server, numbers(13)))


@pytest.mark.usefixtures("small_budget")
async def test_variables_count_against_the_budget() -> None:
    async with local_server() as server:
        heavy = [{"name": name, "expression": HEAVY} for name in ("v", "w")]
        await policy(server, variables=heavy, validations=[{"expression": "variables.v && variables.w && variables.v"}])
        await binding(server)
        policies = server.server.policies
        await policies.validate(pod(server, numbers(8)))
        with pytest.raises(Invalid, match="running out of cost budget"):
            await policies.validate(pod(server, numbers(13)))


async def test_expressions_that_take_too_long_are_stopped() -> None:
    async with local_server() as server:
        await policy(server, validations=[{"expression": HEAVY}])
        await binding(server)
        policies = server.server.policies
        policies.deadline = lambda: lambda: True  # type: ignore[method-assign]
        with pytest.raises(Invalid, match="operation interrupted"):
            await policies.validate(pod(server, numbers(10)))


async def test_a_policy_of_an_older_server_that_does_not_compile_denies() -> None:
    async with local_server() as server:
        await policy(server, validations=[{"expression": "true"}])
        await binding(server)
        policies = server.server.policies
        entry = server.store.get(Key(VALIDATING, "", "p"))
        assert entry is not None
        stored = orjson.loads(entry.value)
        stored["spec"]["validations"] = [{"expression": "object.startsWith("}]
        value, hole = objects.encode(stored, stored["kind"], stored["apiVersion"])
        await server.store.commit([Put(entry.key, value, hole)])
        with pytest.raises(Invalid, match="compilation error: compilation failed: ERROR"):
            await policies.validate(pod(server))


@pytest.mark.parametrize(
    ("kind", "reference", "fault"),
    [
        (
            {"apiVersion": "v1", "kind": "ConfigMap"}, {"name": "x"},
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
        ),
        (
            {"apiVersion": "v1", "kind": "Node"}, {"name": "x", "namespace": "default"},
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
        ),
    ],
)  # fmt: skip
async def test_references_to_parameters_must_fit_their_kind(kind: Obj, reference: Obj, fault: str) -> None:
    async with local_server() as server:
        nodes = [{**PODS[0], "resources": ["nodes"]}]
        match = {"resourceRules": nodes}
        await policy(server, validations=[{"expression": "true"}], paramKind=kind, matchConstraints=match)
        await binding(server, paramRef={**reference, "parameterNotFoundAction": "Allow"})
        served = server.server.core.registry.get("", "v1", "nodes")
        assert served is not None
        write = Admission("CREATE", served, "", "", "n", User("ann"), {"metadata": {"name": "n"}}, None, {}, False, [])
        with pytest.raises(Invalid, match="failed to configure binding: " + fault.replace(".", r"\.")):
            await server.server.policies.validate(write)
