"""Which writes a hook is asked about, and in which version it sees them."""

from __future__ import annotations

import pytest
from webhook_steps import CONFIGMAPS, PODS, configure, create, pod

from shoal.apiserver.admission.model import CONNECT, Admission
from shoal.apiserver.admission.webhooks.review import Denied
from shoal.apiserver.user import User
from shoal.kube.objects import Obj
from shoal.testing.servers import local_server
from shoal.testing.webhooks import allowed, denied, hook, mutating, patched, rule, validating, webhook_server

SCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"


async def test_namespaces_are_selected_by_their_labels() -> None:
    async with webhook_server({"/": lambda review: denied()}) as hooks, local_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "free", "labels": {"skip": "yes"}}})
        selector = {"matchExpressions": [{"key": "skip", "operator": "NotIn", "values": ["yes"]}]}
        narrowed = hook("v.example.com", hooks, "/", rule("configmaps"), namespaceSelector=selector)
        await configure(server, validating("v", narrowed))
        assert (await create(server)).status == 400
        assert (await create(server, target="/api/v1/namespaces/free/configmaps")).status == 201
        await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"skip": "yes"}}})
        assert (await create(server)).status == 201


async def test_a_namespace_itself_is_selected_by_its_own_labels() -> None:
    async with webhook_server({"/": lambda review: denied()}) as hooks, local_server() as server:
        selector = {"matchLabels": {"guarded": "yes"}}
        rules = rule("namespaces", operations=["CREATE", "UPDATE", "DELETE"])
        narrowed = hook("v.example.com", hooks, "/", rules, namespaceSelector=selector)
        await server.post("/api/v1/namespaces", {"metadata": {"name": "kept", "labels": {"guarded": "yes"}}})
        await configure(server, validating("v", narrowed))
        free = {"metadata": {"name": "free"}}
        assert (await server.call("POST", "/api/v1/namespaces", free)).status == 201
        guarded = {"metadata": {"name": "guarded", "labels": {"guarded": "yes"}}}
        assert (await server.call("POST", "/api/v1/namespaces", guarded)).status == 400
        assert (await server.call("DELETE", "/api/v1/namespaces/kept")).status == 400
        assert (await server.call("DELETE", "/api/v1/namespaces/free")).status == 200
        assert hooks.asked("/")[0]["namespace"] == "guarded"


async def test_objects_are_selected_by_what_they_are_or_were() -> None:
    async with webhook_server({"/": lambda review: denied()}) as hooks, local_server() as server:
        labelled = {"metadata": {"name": "a", "labels": {"watched": "yes"}}}
        await server.post(CONFIGMAPS, labelled)
        selector = {"matchLabels": {"watched": "yes"}}
        narrowed = hook("v.example.com", hooks, "/", rule("configmaps"), objectSelector=selector)
        await configure(server, validating("v", narrowed))
        (await create(server, "b")).ok()
        merge = {"content-type": "application/merge-patch+json"}
        removing = {"metadata": {"labels": {"watched": None}}}
        assert (await server.call("PATCH", f"{CONFIGMAPS}/a", removing, merge)).status == 400
        adding = {"metadata": {"labels": {"watched": "yes"}}}
        assert (await server.call("PATCH", f"{CONFIGMAPS}/b", adding, merge)).status == 400
        assert (await server.call("PATCH", f"{CONFIGMAPS}/b", {"data": {"x": "y"}}, merge)).status == 200


def scaler(version: str) -> Obj:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "s"},
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        },
    }


async def test_an_equivalent_version_is_converted_for_the_hook_and_back() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 42}},
    }
    change = patched({"op": "add", "path": "/spec/metrics", "value": [metric]})
    async with webhook_server({"/": lambda review: change}) as hooks, local_server() as server:
        new_only = rule("horizontalpodautoscalers", groups=["autoscaling"], versions=["v2"])
        await configure(server, mutating("m", hook("m.example.com", hooks, "/", new_only)))
        made = await server.post(SCALERS.format("v1"), scaler("v1"))
        assert made["apiVersion"] == "autoscaling/v1"
        assert made["spec"]["targetCPUUtilizationPercentage"] == 42
        [request] = hooks.asked("/")
        assert request["object"]["apiVersion"] == "autoscaling/v2"
        assert request["kind"]["version"] == request["resource"]["version"] == "v2"
        assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v1"


async def test_exact_means_the_version_of_the_request() -> None:
    async with webhook_server({"/": lambda review: denied()}) as hooks, local_server() as server:
        new_only = rule("horizontalpodautoscalers", groups=["autoscaling"], versions=["v2"])
        exact = hook("v.example.com", hooks, "/", new_only, matchPolicy="Exact")
        await configure(server, validating("v", exact))
        await server.post(SCALERS.format("v1"), scaler("v1"))
        assert (await server.call("DELETE", SCALERS.format("v1") + "/s")).status == 200
        assert (await server.call("POST", SCALERS.format("v2"), scaler("v2"))).status == 400


def conditioned(*expressions: str) -> list[Obj]:
    return [{"name": f"c{i}", "expression": expression} for i, expression in enumerate(expressions)]


@pytest.mark.parametrize(
    ("expressions", "policy", "status"),
    [
        (["object.metadata.name == 'a'"], "Fail", 400),
        (["object.metadata.name != 'a'"], "Fail", 201),
        (["object.metadata.name == 'a'", "request.operation == 'UPDATE'"], "Fail", 201),
        (["oldObject == null && request.userInfo.username == 'admin'"], "Fail", 400),
        (["object.data.missing == 'x'"], "Fail", 403),
        (["object.data.missing == 'x'"], "Ignore", 201),
        (["object.data.missing == 'x'", "false"], "Fail", 201),
        (["authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()"], "Fail", 400),
        (["authorizer.requestResource.check('create').allowed()"], "Fail", 400),
        (["!authorizer.serviceAccount('default', 'nobody').path('/x').check('get').allowed()"], "Fail", 400),
    ],
)
async def test_conditions_decide_last(expressions: list[str], policy: str, status: int) -> None:
    async with webhook_server({"/": lambda review: denied()}) as hooks, local_server() as server:
        narrowed = hook(
            "v.example.com", hooks, "/", rule("configmaps"),
            matchConditions=conditioned(*expressions), failurePolicy=policy,
        )  # fmt: skip
        await configure(server, validating("v", narrowed))
        answer = await create(server)
        assert answer.status == status
        if status == 403:
            assert answer.json["reason"] == "Forbidden"
            assert answer.json["message"] == (
                "configmaps \"a\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: "
                "no such key: data"
            )


async def test_attaching_to_a_pod_concerns_hooks_of_connections() -> None:
    async with webhook_server({"/": lambda review: denied("hands off")}) as hooks, local_server() as server:
        await server.post(PODS, pod())
        attach = rule("pods/attach", operations=["CONNECT"])
        await configure(server, validating("v", hook("v.example.com", hooks, "/", attach)))
        webhooks = server.server.webhooks
        pods = server.server.core.registry.get("", "v1", "pods")
        assert pods is not None
        assert webhooks.wants_validate(pods, CONNECT, "attach")
        assert not webhooks.wants_validate(pods, CONNECT, "exec")
        assert not webhooks.wants_validate(pods, "CREATE", "")
        options = {"kind": "PodAttachOptions", "apiVersion": "v1", "container": "c", "stdout": True}
        admission = Admission(
            CONNECT, pods, "attach", "default", "p", User("admin"), options, None, {}, False, [],
            kind=("", "v1", "PodAttachOptions"),
        )  # fmt: skip
        with pytest.raises(Denied, match="hands off"):
            await webhooks.validate(admission)
        [request] = hooks.asked("/")
        assert request["object"] == options
        assert request["kind"] == {"group": "", "version": "v1", "kind": "PodAttachOptions"}
        assert (request["operation"], request["subResource"]) == ("CONNECT", "attach")


async def test_the_audit_log_learns_what_hooks_did() -> None:
    handlers = {
        "/change": lambda review: patched({"op": "add", "path": "/data", "value": {"a": "b"}}),
        "/note": lambda review: allowed(auditAnnotations={"score": "7"}),
        "/gone": lambda review: {},
    }
    async with webhook_server(handlers) as hooks, local_server() as server:
        rules = rule("configmaps")
        await configure(
            server,
            mutating(
                "m",
                hook("change.example.com", hooks, "/change", rules),
                hook("note.example.com", hooks, "/note", rules),
                hook("gone.example.com", hooks, "/nowhere", rules, failurePolicy="Ignore"),
            ),
        )
        configmaps = server.server.core.registry.get("", "v1", "configmaps")
        assert configmaps is not None
        obj = {"metadata": {"name": "a", "namespace": "default"}}
        admission = Admission("CREATE", configmaps, "", "default", "a", User("admin"), obj, None, {}, False, [])
        assert await server.server.webhooks.mutate(admission, again=False)
        mutation = "mutation.webhook.admission.k8s.io/round_0_index_"
        assert admission.annotations == {
            f"{mutation}0": '{"configuration":"m","webhook":"change.example.com","mutated":true}',
            "patch.webhook.admission.k8s.io/round_0_index_0": (
                '{"configuration":"m","webhook":"change.example.com",'
                '"patch":[{"op":"add","path":"/data","value":{"a":"b"}}],"patchType":"JSONPatch"}'
            ),
            f"{mutation}1": '{"configuration":"m","webhook":"note.example.com","mutated":false}',
            "note.example.com/score": "7",
            f"{mutation}2": '{"configuration":"m","webhook":"gone.example.com","mutated":false}',
            f"failed-open.{mutation}2": "gone.example.com",
        }
