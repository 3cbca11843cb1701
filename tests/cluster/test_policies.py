"""Admission policies on a whole API server: real expressions, bindings, parameters, every kind of write."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.objects import Obj
from shoal.testing.servers import LocalServer, ServerAnswer, local_server

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}


def rule(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any) -> Obj:
    found = {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}
    return {**found, **more}


async def validating(
    server: LocalServer, *expressions: str | Obj, name: str = "p", match: Obj | None = None, actions: tuple[str, ...] = ("Deny",),
    binding: Obj | None = None, **spec: Any,
) -> Obj:  # fmt: skip
    """A policy on ConfigMaps (or what ``match`` says) and its binding of the same name."""
    validations = [{"expression": each} if isinstance(each, str) else each for each in expressions]
    match = match or {"resourceRules": [rule("configmaps")]}
    body = {"metadata": {"name": name}, "spec": {"matchConstraints": match, "validations": validations, **spec}}
    made = await server.post(f"{ADMISSION}/validatingadmissionpolicies", body)
    bound = {"policyName": name, "validationActions": list(actions), **(binding or {})}
    await server.post(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": bound})
    return dict(made)


def patch(expression: str) -> Obj:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def apply(expression: str) -> Obj:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


async def mutating(
    server: LocalServer, *mutations: Obj, name: str = "m", match: Obj | None = None, binding: Obj | None = None,
    repeat: bool = False, **spec: Any,
) -> None:  # fmt: skip
    match = match or {"resourceRules": [rule("configmaps")]}
    spec = {"reinvocationPolicy": "IfNeeded" if repeat else "Never", "mutations": list(mutations), **spec}
    body = {"metadata": {"name": name}, "spec": {"matchConstraints": match, **spec}}
    await server.post(f"{ADMISSION}/mutatingadmissionpolicies", body)
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, **(binding or {})}}
    await server.post(f"{ADMISSION}/mutatingadmissionpolicybindings", bound)


def config(name: str = "a", labels: dict[str, str] | None = None, **data: str) -> Obj:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def denial(answer: ServerAnswer, code: int = 422) -> str:
    assert answer.status == code, answer.body
    message: str = answer.json["message"]
    return message.partition(" denied request: ")[2]


def deployment(name: str, replicas: int = 1) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "args": ["x"]}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_policy_refuses_what_does_not_hold_until_its_binding_is_gone() -> None:
    async with local_server() as server:
        await validating(server, {"expression": "object.data.?a.orValue('') == 'x'", "message": " needs a = x "})
        answer = await server.call("POST", MAPS, config(a="y"))
        assert answer.json["message"] == (
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: needs a = x"
        )
        assert (answer.json["reason"], answer.json["code"]) == ("Invalid", 422)
        assert answer.json["details"] == {
            "name": "a", "kind": "configmaps",
            "causes": [{"message": "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: needs a = x"}],
        }  # fmt: skip
        await server.post(MAPS, config(a="x"))
        assert denial(await server.call("PUT", f"{MAPS}/a", config(a="z"))) == "needs a = x"
        merge = {"content-type": "application/merge-patch+json"}
        assert denial(await server.call("PATCH", f"{MAPS}/a", {"data": {"a": "z"}}, merge)) == "needs a = x"
        await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/p")
        await server.post(MAPS, config("b", a="y"))


@pytest.mark.parametrize(
    ("reason", "code"), [("", 422), ("Invalid", 422), ("Forbidden", 403), ("RequestEntityTooLarge", 413)]
)
async def test_the_reason_decides_the_code(reason: str, code: int) -> None:
    async with local_server() as server:
        await validating(server, {"expression": "false", **({"reason": reason} if reason else {})})
        answer = await server.call("POST", MAPS, config())
        assert denial(answer, code) == "failed expression: false"
        assert answer.json["reason"] == (reason or "Invalid")


async def test_messages_come_from_their_expression_if_that_makes_one_line() -> None:
    async with local_server() as server:
        for place, (written, expected) in enumerate(
            [
                ("'got ' + object.metadata.name", "got a"),
                ("'a' + '\\nb'", "fixed"),
                ("'  '", "fixed"),
                ("'no ' + object.missing", "fixed"),
            ]
        ):
            name = f"p{place}"
            await validating(
                server, {"expression": "false", "message": "fixed", "messageExpression": written}, name=name
            )
            assert denial(await server.call("POST", MAPS, config())) == expected
            await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/{name}")


async def test_warnings_and_audit_let_the_write_pass() -> None:
    async with local_server() as server:
        await validating(server, {"expression": "false", "message": "no"}, actions=("Warn", "Audit"))
        answer = await server.call("POST", MAPS, config())
        assert answer.status == 201
        assert "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no" in answer.headers["warning"]


async def test_an_error_is_a_denial_unless_failures_are_ignored() -> None:
    async with local_server() as server:
        await validating(server, "object.data.missing == 'x'")
        text = denial(await server.call("POST", MAPS, config()))
        assert text.startswith("expression 'object.data.missing == 'x'' resulted in error: no such key: ")
        await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/p")
        await validating(server, "object.data.missing == 'x'", name="lenient", failurePolicy="Ignore")
        await server.post(MAPS, config())


async def test_variables_are_computed_late_and_once() -> None:
    async with local_server() as server:
        variables = [
            {"name": "boom", "expression": "object.data.nowhere"},
            {"name": "a", "expression": "object.data.a"},
            {"name": "twice", "expression": "variables.a + variables.a"},
        ]
        await validating(server, "variables.a == 'safe' || variables.twice == 'bb'", variables=variables)
        await server.post(MAPS, config("s", a="safe"))
        await server.post(MAPS, config("b", a="b"))
        assert denial(await server.call("POST", MAPS, config(a="c"))).startswith("failed expression")
        await validating(server, "variables.boom == 'x'", name="q", variables=variables[:1])
        text = denial(await server.call("POST", MAPS, config(a="safe")))
        assert 'composited variable "boom" fails to evaluate: no such key: nowhere' in text


async def test_match_conditions_narrow_a_policy_down() -> None:
    async with local_server() as server:
        conditions = [
            {"name": "named", "expression": "object.metadata.name.startsWith('x')"},
            {"name": "not-admin", "expression": "!('system:nodes' in request.userInfo.groups)"},
        ]
        await validating(server, "false", matchConditions=conditions)
        await server.post(MAPS, config("a"))
        assert denial(await server.call("POST", MAPS, config("xa")))
        broken = [{"name": "broken", "expression": "object.missing == 1"}]
        await validating(server, "true", name="b", matchConditions=broken)
        assert "object.missing == 1" in denial(await server.call("POST", MAPS, config("a2")))
        decided = [*broken, {"name": "no", "expression": "false"}]
        await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/b")
        await validating(server, "false", name="c", matchConditions=decided)
        await server.post(MAPS, config("a3"))


async def test_expressions_see_the_request_the_old_object_and_the_namespace() -> None:
    async with local_server() as server:
        await validating(
            server,
            "request.operation == 'CREATE' ? oldObject == null : oldObject.data.a == 'x'",
            "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.name == 'a'",
            "request.namespace == 'default' && namespaceObject.metadata.name == 'default'",
            "request.userInfo.username == 'admin' && !request.dryRun",
            "namespaceObject.status.phase == 'Active' && request.options.kind in ['CreateOptions', 'UpdateOptions']",
        )
        await server.post(MAPS, config(a="x"))
        await server.put(f"{MAPS}/a", config(a="y"))
        assert "oldObject" in denial(await server.call("PUT", f"{MAPS}/a", config(a="z")))


async def test_deletions_have_no_object() -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("configmaps", operations=("DELETE",))]}
        await validating(server, "object == null && !oldObject.?data.keep.hasValue()", match=match)
        await server.post(MAPS, config("a", keep="yes"))
        await server.post(MAPS, config("b"))
        assert denial(await server.call("DELETE", f"{MAPS}/a"))
        assert (await server.call("DELETE", f"{MAPS}/b")).status == 200
        assert (await server.call("DELETE", MAPS)).status == 422
        assert (await server.get(f"{MAPS}/a"))["data"] == {"keep": "yes"}


async def test_the_authorizer_answers_what_the_user_may_do() -> None:
    async with local_server() as server:
        await validating(
            server,
            "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
            "authorizer.requestResource.check('delete').allowed()",
            "!authorizer.serviceAccount('default', 'default').group('').resource('secrets').check('get').allowed()",
            "authorizer.path('/healthz').check('get').allowed()",
        )
        await server.post(MAPS, config())
        await validating(
            server,
            "authorizer.serviceAccount('default', 'default').path('/metrics').check('get').allowed()",
            name="q",
        )
        assert denial(await server.call("POST", MAPS, config("b")))


async def parameters(server: LocalServer, **found: str) -> None:
    for name, limit in found.items():
        await server.post(MAPS, {"metadata": {"name": name, "labels": {"limit": "yes"}}, "data": {"max": limit}})


LIMITED: Obj = {
    "match": {"resourceRules": [rule("deployments", group="apps")]},
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WITHIN: Obj = {
    "expression": "object.spec.replicas <= int(params.data.max)",
    "messageExpression": "'at most ' + params.data.max + ' by ' + params.metadata.name + ' ' + params.kind",
}


async def test_parameters_are_found_by_name_and_followed() -> None:
    async with local_server() as server:
        reference = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
        await validating(server, WITHIN, binding={"paramRef": reference}, **LIMITED)
        assert denial(await server.call("POST", DEPLOYMENTS, deployment("d"))) == (
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        )
        await parameters(server, limits="3")
        assert denial(await server.call("POST", DEPLOYMENTS, deployment("d", 4))) == "at most 3 by limits ConfigMap"
        await server.put(f"{MAPS}/limits", {"metadata": {"name": "limits"}, "data": {"max": "5"}})
        await server.post(DEPLOYMENTS, deployment("d", 4))


async def test_every_selected_parameter_must_agree_and_none_may_be_enough() -> None:
    async with local_server() as server:
        reference = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}
        await validating(server, WITHIN, binding={"paramRef": reference}, **LIMITED)
        await server.post(DEPLOYMENTS, deployment("free", 50))
        await parameters(server, big="30", small="3")
        assert denial(await server.call("POST", DEPLOYMENTS, deployment("d", 10))) == "at most 3 by small ConfigMap"
        await server.post(DEPLOYMENTS, deployment("d", 3))


async def test_without_a_reference_params_are_null_and_unknown_kinds_are_reported() -> None:
    async with local_server() as server:
        await validating(server, "params == null", **LIMITED)
        await server.post(DEPLOYMENTS, deployment("d"))
        kind = {"apiVersion": "rules.example.com/v1", "kind": "Limit"}
        await validating(server, "params == null", name="q", match=LIMITED["match"], paramKind=kind)
        answer = await server.call("POST", DEPLOYMENTS, deployment("e"))
        assert answer.json["message"] == (
            "deployments.apps \"e\" is forbidden: ValidatingAdmissionPolicy 'q' denied request: failed to configure "
            "policy: failed to find resource referenced by paramKind: 'rules.example.com/v1, Kind=Limit'"
        )


async def test_bindings_choose_namespaces_and_objects() -> None:
    async with local_server() as server:
        for name, labels in (("prod", {"env": "prod"}), ("test", {})):
            await server.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        match = {
            "namespaceSelector": {"matchLabels": {"env": "prod"}},
            "objectSelector": {"matchLabels": {"strict": "yes"}},
        }
        await validating(server, "false", binding={"matchResources": match})
        strict = config("a", {"strict": "yes"})
        await server.post("/api/v1/namespaces/test/configmaps", strict)
        await server.post("/api/v1/namespaces/prod/configmaps", config("loose"))
        assert denial(await server.call("POST", "/api/v1/namespaces/prod/configmaps", strict))


async def test_other_versions_of_a_kind_are_seen_as_the_rule_wants_them() -> None:
    async with local_server() as server:
        match = {
            "resourceRules": [{**rule("horizontalpodautoscalers", group="autoscaling"), "apiVersions": ["v1"]}],
            "matchPolicy": "Equivalent",
        }
        await validating(
            server,
            "object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage < 50",
            "request.kind.version == 'v1' && request.requestKind.version == 'v2'",
            match=match,
        )
        cpu = {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 40}},
        }
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        spec = {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [cpu]}
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        await server.post(path, {"metadata": {"name": "a"}, "spec": spec})
        cpu["resource"]["target"]["averageUtilization"] = 80  # type: ignore[index]
        assert denial(await server.call("POST", path, {"metadata": {"name": "b"}, "spec": spec}))


async def test_subresources_are_only_seen_by_rules_that_name_them() -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("deployments/scale", group="apps")]}
        await validating(server, "object.kind == 'Scale' && object.spec.replicas < 5", match=match)
        await server.post(DEPLOYMENTS, deployment("d", 9))
        scale = {"metadata": {"name": "d"}, "spec": {"replicas": 7}}
        assert denial(await server.call("PUT", f"{DEPLOYMENTS}/d/scale", scale))
        await server.put(f"{DEPLOYMENTS}/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 2}})


CRONTABS: Obj = {
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object",
                    "properties": {
                        "replicas": {"type": "integer"},
                        "mode": {"type": "string", "default": "plain"},
                        "steps": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "run": {"type": "string"},
                            }},
                        },
                    },
                }}}},
            }
        ],
    },
}  # fmt: skip
CRONTAB_RULES: Obj = {"resourceRules": [rule("crontabs", group="stable.example.com")]}


async def test_custom_resources_are_validated_changed_and_type_checked() -> None:
    async with local_server() as server:
        await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRONTABS)
        made = await validating(server, "object.spec.replicas > 1", match=CRONTAB_RULES)
        assert made["status"] == {"observedGeneration": 1, "typeChecking": {}}
        confused = await validating(
            server, "object.spec.replicas > '1'", "object.spec.maxRetries < 10", name="confused", match=CRONTAB_RULES,
            actions=("Audit",),
        )  # fmt: skip
        first, second = confused["status"]["typeChecking"]["expressionWarnings"]
        assert first["fieldRef"] == "spec.validations[0].expression"
        assert "found no matching overload for '_>_' applied to '(int, string)'" in first["warning"]
        assert first["warning"].startswith("stable.example.com/v1, Kind=CronTab: ERROR: <input>:1:")
        assert second["fieldRef"] == "spec.validations[1].expression"
        assert "undefined field 'maxRetries'" in second["warning"]
        await mutating(
            server,
            apply("Object{spec: Object.spec{steps: [Object.spec.steps{name: 'last', run: object.spec.mode}]}}"),
            match=CRONTAB_RULES,
        )
        path = "/apis/stable.example.com/v1/namespaces/default/crontabs"
        head = {"apiVersion": "stable.example.com/v1", "kind": "CronTab"}
        spec = {"replicas": 2, "steps": [{"name": "first", "run": "x"}]}
        stored = await server.post(path, {**head, "metadata": {"name": "a"}, "spec": spec})
        assert stored["spec"]["steps"] == [{"name": "first", "run": "x"}, {"name": "last", "run": "plain"}]
        assert denial(await server.call("POST", path, {**head, "metadata": {"name": "b"}, "spec": {"replicas": 1}}))


async def test_built_in_kinds_are_type_checked_when_the_policy_is_written() -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("deployments", group="apps")]}
        confused = {
            "expression": "object.spec.replicas > '1'",
            "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas",
        }
        made = await validating(server, confused, match=match)
        first, second = made["status"]["typeChecking"]["expressionWarnings"]
        assert first["fieldRef"] == "spec.validations[0].expression"
        assert "found no matching overload for '_>_' applied to '(int, string)'" in first["warning"]
        assert second["fieldRef"] == "spec.validations[0].messageExpression"
        assert "found no matching overload for '_+_' applied to '(string, int)'" in second["warning"]
        path = f"{ADMISSION}/validatingadmissionpolicies/p"
        good = [
            "object.spec.replicas > 1", "object.metadata.namespace == 'x'",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('a') && !has(c.resources))",
            "object.metadata.creationTimestamp < timestamp('2024-01-01T00:00:00Z')",
        ]  # fmt: skip
        made["spec"]["validations"] = [{"expression": each} for each in good]
        changed = await server.put(path, made)
        assert changed["status"] == {"observedGeneration": 2, "typeChecking": {}}
        changed["metadata"]["labels"] = {"a": "b"}
        assert (await server.put(path, changed))["status"] == changed["status"]


async def test_policies_that_do_not_compile_are_refused() -> None:
    async with local_server() as server:
        for expression, fault in (
            ("object.metadata.name", "must evaluate to bool but got dyn"),
            ("'x'", "must evaluate to bool but got string"),
            ("object.", "Syntax error"),
            ("params.x == 1", "undeclared reference to 'params'"),
            ("variables.x == 1", "undeclared reference to 'variables'"),
            ("Object{} == Object{}", "undeclared reference to 'Object'"),
        ):
            spec = {"matchConstraints": {"resourceRules": [rule("pods")]}, "validations": [{"expression": expression}]}
            body = {"metadata": {"name": "p"}, "spec": spec}
            answer = await server.call("POST", f"{ADMISSION}/validatingadmissionpolicies", body)
            assert answer.status == 422 and fault in answer.json["message"], answer.json["message"]
        message = {"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}
        spec = {"matchConstraints": {"resourceRules": [rule("pods")]}, "validations": [message]}
        answer = await server.call(
            "POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec}
        )
        assert "undeclared reference to 'authorizer'" in answer.json["message"]
        for mutation, fault in (
            (apply("Object.spec{a: 1}"), "must evaluate to Object but got Object.spec"),
            (apply("{'a': 1}"), "must evaluate to Object but got map(string, int)"),
            (patch("JSONPatch{op: 'add'}"), "must evaluate to list(JSONPatch) but got JSONPatch"),
        ):
            spec = {"matchConstraints": {"resourceRules": [rule("pods")]}, "mutations": [mutation]}
            body = {"metadata": {"name": "p"}, "spec": {**spec, "reinvocationPolicy": "Never"}}
            answer = await server.call("POST", f"{ADMISSION}/mutatingadmissionpolicies", body)
            assert answer.status == 422 and fault in answer.json["message"], answer.json["message"]


async def test_policies_about_everything_never_lock_out_their_own_repair() -> None:
    async with local_server() as server:
        await validating(server, "false", match={"resourceRules": [EVERYTHING]})
        assert denial(await server.call("POST", MAPS, config()))
        assert denial(await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}}))
        gone = await server.call("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
        assert gone.status == 200
        await server.post(MAPS, config())


async def test_an_endless_expression_runs_out_of_budget() -> None:
    async with local_server() as server:
        loop = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != 'x'))))"
        await validating(server, loop)
        many = {f"k{number}": "v" for number in range(100)}
        text = denial(await server.call("POST", MAPS, {"metadata": {"name": "a"}, "data": many}))
        assert text.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


async def test_applied_objects_are_merged_as_server_side_apply_does() -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("deployments", group="apps")]}
        await mutating(
            server,
            apply("""Object{
                metadata: Object.metadata{labels: {'team': namespaceObject.metadata.name}},
                spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
                    containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
                        name: c.name, imagePullPolicy: 'Never',
                        env: [Object.spec.template.spec.containers.env{name: 'N', value: string(object.spec.replicas)}]
                    })
                }}}
            }"""),
            match=match,
        )  # fmt: skip
        made = await server.post(DEPLOYMENTS, deployment("d", 2))
        container = made["spec"]["template"]["spec"]["containers"][0]
        assert container["imagePullPolicy"] == "Never" and container["args"] == ["x"]
        assert container["env"] == [{"name": "N", "value": "2"}]
        assert made["metadata"]["labels"] == {"team": "default"}
        assert (await server.get(f"{DEPLOYMENTS}/d"))["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("mutation", "fault"),
    [
        (
            apply("Object{spec: Object.spec{paused: true, wrong: 1}}"),
            "error applying patch: failed to convert patch object to typed object: .spec.wrong: field not declared in schema",
        ),
        (
            apply("Object{spec: Object.spec{template: Object.spec.wrong{}}}"),
            'type mismatch: unexpected type name "Object.spec.wrong", expected "Object.spec.template", which matches field '
            "name path from root Object type",
        ),
        (
            apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            ".spec.selector",
        ),
        (
            patch("[JSONPatch{op: 'remove', path: '/spec/nowhere'}]"),
            "JSON Patch: error in remove for path: '/spec/nowhere': Unable to remove nonexistent key: nowhere: missing value",
        ),
        (apply("Object{spec: Object.spec{replicas: object.spec.gone}}"), "no such key: gone"),
    ],
)  # fmt: skip
async def test_a_mutation_that_does_not_work_denies_unless_failures_are_ignored(mutation: Obj, fault: str) -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("deployments", group="apps")]}
        await mutating(server, mutation, match=match)
        answer = await server.call("POST", DEPLOYMENTS, deployment("d"))
        assert (answer.status, answer.json["reason"]) == (403, "Invalid")
        assert answer.json["message"].startswith("policy 'm' with binding 'm' denied request: ")
        assert answer.json["message"].endswith(fault)
        assert answer.json["details"]["causes"] == [{"message": answer.json["message"]}]
        await server.call("DELETE", f"{ADMISSION}/mutatingadmissionpolicybindings/m")
        await mutating(server, mutation, name="lenient", match=match, failurePolicy="Ignore")
        await server.post(DEPLOYMENTS, deployment("d"))


async def test_json_patches_are_carried_out_and_tests_in_them_decide() -> None:
    async with local_server() as server:
        await mutating(
            server,
            patch("""[
                JSONPatch{op: 'test', path: '/metadata/name', value: 'a'},
                JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('k8s.io'), value: 'x'},
                JSONPatch{op: 'copy', from: '/data/k8s.io', path: '/data/copied'}
            ]"""),
            patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'got': object.data.?copied.orValue('none')}}]"),
        )  # fmt: skip
        made = await server.post(MAPS, config("a", own="1"))
        assert made["data"] == {"own": "1", "k8s.io": "x", "copied": "x"}
        assert made["metadata"]["labels"] == {"got": "x"}
        made = await server.post(MAPS, config("b", own="1"))
        assert made["data"] == {"own": "1"} and made["metadata"]["labels"] == {"got": "none"}


async def test_a_patch_to_an_unknown_field_is_an_error_of_the_policy() -> None:
    async with local_server() as server:
        await mutating(server, patch("[JSONPatch{op: 'add', path: '/wrong', value: 'x'}]"), failurePolicy="Ignore")
        answer = await server.call("POST", MAPS, config())
        assert answer.status == 500
        assert answer.json["message"] == 'Internal error occurred: strict decoding error: unknown field "wrong"'


def chained(name: str, text: str) -> Obj:
    """Adds its mark to a trail, once for every time it is asked."""
    return patch(
        "[JSONPatch{op: 'add', path: '/data', value: {'trail': object.?data.trail.orValue('') + '" + text + "'}}]"
        if not name
        else f"object.?data.trail.orValue('').endsWith('{name}') ? "
        f"[JSONPatch{{op: 'add', path: '/data', value: {{'trail': object.data.trail + '{text}'}}}}] : []"
    )


@pytest.mark.parametrize(("repeat", "trail"), [(False, "ab"), (True, "abc")])
async def test_policies_run_in_the_order_of_names_and_again_if_they_ask_for_it(repeat: bool, trail: str) -> None:
    async with local_server() as server:
        await mutating(server, chained("b", "c"), name="m1", repeat=repeat)  # has something to do only after the others
        await mutating(server, chained("", "a"), name="m2", matchConditions=[
            {"name": "first", "expression": "!has(object.data)"}
        ])  # fmt: skip
        await mutating(server, chained("a", "b"), name="m3")
        made = await server.post(MAPS, {"metadata": {"name": "a"}})
        assert made["data"] == {"trail": trail}


async def test_a_policy_is_not_repeated_for_its_own_change() -> None:
    async with local_server() as server:
        await mutating(server, chained("", "a"), name="m1", repeat=True)
        assert (await server.post(MAPS, {"metadata": {"name": "a"}}))["data"] == {"trail": "a"}


async def test_mutations_see_parameters_variables_and_the_old_object() -> None:
    async with local_server() as server:
        await parameters(server, limits="3")
        await mutating(
            server,
            apply("Object{spec: Object.spec{replicas: variables.most < object.spec.replicas ? variables.most : object.spec.replicas}}"),
            apply("Object{metadata: Object.metadata{annotations: {'was': oldObject == null ? '' : string(oldObject.spec.replicas)}}}"),
            match=LIMITED["match"], paramKind=LIMITED["paramKind"],
            variables=[{"name": "most", "expression": "int(params.data.max)"}],
            binding={"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}},
        )  # fmt: skip
        made = await server.post(DEPLOYMENTS, deployment("d", 10))
        assert made["spec"]["replicas"] == 3
        changed = await server.put(f"{DEPLOYMENTS}/d", deployment("d", 2))
        assert changed["spec"]["replicas"] == 2
        assert changed["metadata"]["annotations"]["was"] == "3"


async def test_validation_sees_what_mutation_has_made() -> None:
    async with local_server() as server:
        await mutating(server, apply("Object{metadata: Object.metadata{labels: {'owner': request.userInfo.username}}}"))
        await validating(server, "object.metadata.labels.owner == 'admin'")
        assert (await server.post(MAPS, config()))["metadata"]["labels"] == {"owner": "admin"}


async def test_a_mutation_in_another_version_comes_back_in_that_of_the_request() -> None:
    async with local_server() as server:
        match = {"resourceRules": [rule("horizontalpodautoscalers", group="autoscaling")], "matchPolicy": "Equivalent"}
        await mutating(server, apply("Object{spec: Object.spec{targetCPUUtilizationPercentage: 33}}"), match=match)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}
        made = await server.post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", body)
        assert made["apiVersion"] == "autoscaling/v2"
        assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 33


async def test_names_and_identity_are_not_the_policies_to_change() -> None:
    async with local_server() as server:
        await mutating(server, patch("[JSONPatch{op: 'add', path: '/metadata/name', value: 'other'}]"))
        made = await server.post(MAPS, config("a"))
        assert made["metadata"]["name"] == "a"


async def test_dry_runs_are_decided_too() -> None:
    async with local_server() as server:
        await validating(server, "request.dryRun")
        assert (await server.call("POST", f"{MAPS}?dryRun=All", config())).status == 201
        assert denial(await server.call("POST", MAPS, config()))
