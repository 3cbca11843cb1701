"""Admission webhooks at work: what they refuse, what they change, and what happens when they cannot be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance_api import Api, Refused, conformance, unique
from conformance_definitions import custom, defined, definition, definitions, version
from conformance_webhooks import ADMISSION, SampleWebhook, sample_webhook

from shoal.kube.objects import Obj


@pytest.fixture
def webhook(api: Api, namespace: str) -> Iterator[SampleWebhook]:
    """The sample webhook; what a test has registered goes with it."""
    with sample_webhook(api, namespace) as running:
        before = {kind: set(api.of(ADMISSION, kind).names()) for kind in KINDS}
        yield running
        for kind in KINDS:
            for name in set(api.of(ADMISSION, kind).names()) - before[kind]:
                api.of(ADMISSION, kind).delete(name)


KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
BAD = {"webhook-e2e-test": "webhook-disallow"}
START = {"mutation-start": "yes"}


def denial(action: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The message of a refusal by a webhook."""
    with pytest.raises(Refused) as refused:
        action(*args, **kwargs)
    assert "webhook" in refused.value.message
    return refused.value.message


def config_map(name: str = "", data: Obj | None = None) -> Obj:
    return {"metadata": {"name": name or unique("cm")}, "data": data or {}}


def pod(name: str, container: str = "container1", **labels: str) -> Obj:
    containers = [{"name": container, "image": "registry.k8s.io/pause"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}


def deny_config_maps(webhook: SampleWebhook, **more: Any) -> Obj:
    name = "deny-unwanted-configmap-data.k8s.io"
    return webhook.hook(name, "/configmaps", "configmaps", "CREATE", "UPDATE", "DELETE", **more)


def mutate_config_maps(webhook: SampleWebhook, stage: int, **more: Any) -> Obj:
    name = f"adding-configmap-data-stage-{stage}.k8s.io"
    return webhook.hook(name, "/mutating-configmaps", "configmaps", **more)


def unreachable(webhook: SampleWebhook, name: str, **more: Any) -> Obj:
    """A hook whose certificate is not trusted: every call fails."""
    config = webhook.client_config("/configmaps", trusted=False)
    return webhook.hook(name, "/configmaps", "configmaps", **{"clientConfig": config, **more})


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to deny pod and configmap creation"
    " [Conformance]"
)
def test_pods_and_config_maps_are_denied(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    exempt = {"key": "skip-webhook-admission", "operator": "NotIn", "values": ["yes"]}
    marked = {"matchLabels": {"e2e": namespace}, "matchExpressions": [exempt]}
    namespaces = api.of("v1", "namespaces")
    namespaces.patch(namespace, {"metadata": {"labels": {"e2e": namespace}}})
    webhook.register(
        "validating",
        webhook.hook("deny-unwanted-pods.k8s.io", "/pods", "pods", timeoutSeconds=1, namespaceSelector=marked),
        deny_config_maps(webhook, namespaceSelector=marked),
        unreachable(webhook, "fail-open.k8s.io", failurePolicy="Ignore"),
    )
    pods, config_maps = api.of("v1", "pods", namespace), api.of("v1", "configmaps", namespace)
    message = denial(pods.create, pod("disallowed-pod", "webhook-disallow", **BAD))
    assert "the pod contains unwanted container name" in message
    assert "the pod contains unwanted label" in message
    hanging = denial(pods.create, pod("hanging-pod", **{"webhook-e2e-test": "wait-forever"}))
    assert "deadline" in hanging
    assert pods.is_gone("hanging-pod")
    unwanted = "the configmap contains unwanted key and value"
    assert unwanted in denial(config_maps.create, config_map("disallowed", BAD))
    config_maps.create(config_map("allowed", {"admit": "this"}))
    assert unwanted in denial(config_maps.update, "allowed", lambda obj: obj["data"].update(BAD))
    assert unwanted in denial(config_maps.patch, "allowed", {"data": BAD}, "strategic")
    labels = {"skip-webhook-admission": "yes", "e2e": namespace}
    exempted = unique("exempted-namespace")
    namespaces.create({"metadata": {"name": exempted, "labels": labels}})
    api.of("v1", "configmaps", exempted).create(config_map("disallowed", BAD))


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to deny attaching pod [Conformance]"
)
def test_attaching_is_denied(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    webhook.register(
        "validating", webhook.hook("deny-attaching-pod.k8s.io", "/pods/attach", "pods/attach", "CONNECT")
    )  # fmt: skip
    pods = api.of("v1", "pods", namespace)
    pods.create(pod("to-be-attached-pod"))
    attach = f"{pods.path}/to-be-attached-pod/attach"
    message = denial(api.send, "POST", attach, container="container1", stdin="true", stdout="true")
    assert "attaching to pod 'to-be-attached-pod' is not allowed" in message
    with pytest.raises(Refused) as elsewhere:  # let through, but the pod has no node yet
        api.send("POST", attach, container="container1", stdout="true")
    assert "webhook" not in elsewhere.value.message


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to deny custom resource creation,"
    " update and deletion [Conformance]"
)
def test_custom_objects_are_denied(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    with defined(api, definition(scope="Namespaced")) as crd:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        hook = webhook.hook(
            "deny-unwanted-custom-resource-data.k8s.io", "/custom-resource", plural, "CREATE", "UPDATE", "DELETE",
            group=group,
        )  # fmt: skip
        configuration = webhook.register("validating", hook)
        objects = custom(api, crd, namespace)

        def make(name: str, value: str) -> Obj:
            head = {"apiVersion": f"{group}/v1", "kind": crd["spec"]["names"]["kind"], "metadata": {"name": name}}
            return objects.create({**head, "data": {"webhook-e2e-test": value}})

        unwanted = "the custom resource contains unwanted data"
        assert unwanted in denial(make, "cr-instance-1", "webhook-disallow")
        make("cr-instance-2", "webhook-nondeletable")
        assert unwanted in denial(objects.update, "cr-instance-2", lambda obj: obj["data"].update(BAD))
        kept = "the custom resource cannot be deleted because it contains unwanted key and value"
        assert kept in denial(objects.delete, "cr-instance-2")
        objects.update("cr-instance-2", lambda obj: obj["data"].update({"webhook-e2e-test": "webhook-allow"}))
        objects.delete("cr-instance-2")
        assert objects.is_gone("cr-instance-2")
        api.of(ADMISSION, "validatingwebhookconfigurations").delete(configuration)


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should unconditionally reject operations on fail"
    " closed webhook [Conformance]"
)
def test_a_webhook_that_fails_closed(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    webhook.register("validating", unreachable(webhook, "fail-closed.k8s.io", failurePolicy="Fail"))
    with pytest.raises(Refused) as refused:
        api.of("v1", "configmaps", namespace).create(config_map("foo"))
    assert refused.value.reason == "InternalError"
    assert 'failed calling webhook "fail-closed.k8s.io"' in refused.value.message


@conformance("[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate configmap [Conformance]")
def test_config_maps_are_mutated_in_order(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    webhook.register("mutating", mutate_config_maps(webhook, 1), mutate_config_maps(webhook, 2))
    made = api.of("v1", "configmaps", namespace).create(config_map("to-be-mutated", START))
    assert made["data"] == {**START, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate everything except 'skip-me'"
    " configmaps [Conformance]"
)
def test_config_maps_are_mutated_except_one(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    skip = [{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]
    webhook.register("mutating", mutate_config_maps(webhook, 1, matchConditions=skip))
    config_maps = api.of("v1", "configmaps", namespace)
    assert config_maps.create(config_map(data=START))["data"] == {**START, "mutation-stage-1": "yes"}
    assert config_maps.create(config_map("skip-me", START))["data"] == START


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate pod and apply defaults after"
    " mutation [Conformance]"
)
def test_pods_are_mutated_and_defaulted(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    webhook.register("mutating", webhook.hook("adding-init-container.k8s.io", "/mutating-pods", "pods"))
    made = api.of("v1", "pods", namespace).create(pod("webhook-to-be-mutated"))
    [added] = made["spec"]["initContainers"]
    assert added["name"] == "webhook-added-init-container"
    assert added["terminationMessagePolicy"] == "File"


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should not be able to mutate or prevent deletion"
    " of webhook configuration objects [Conformance]"
)
def test_webhooks_are_not_called_for_webhook_configurations(api: Api, webhook: SampleWebhook) -> None:
    everything: Obj = {"group": "admissionregistration.k8s.io", "version": "*", "namespaceSelector": {}}
    for kind in KINDS:
        webhook.register("validating", webhook.hook("deny.k8s.io", "/always-deny", kind, "DELETE", **everything))
        webhook.register("mutating", webhook.hook("add-label.k8s.io", "/add-label", kind, "CREATE", **everything))
    for kind in ("validating", "mutating"):
        dummy = webhook.hook("dummy.k8s.io", "/", "invalid", failurePolicy="Ignore")
        name = webhook.register(kind, dummy)
        configurations = api.of(ADMISSION, f"{kind}webhookconfigurations")
        assert "added-label" not in configurations.get(name)["metadata"].get("labels", {})
        configurations.delete(name)
        assert configurations.is_gone(name)


def mutate_custom_objects(webhook: SampleWebhook, crd: Obj) -> None:
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    hooks = [
        webhook.hook(
            f"mutate-custom-resource-data-stage-{stage}.k8s.io",
            "/mutating-custom-resource",
            plural,
            "CREATE",
            "UPDATE",
            group=group,
            version="*",
        )  # fmt: skip
        for stage in (1, 2)
    ]
    webhook.register("mutating", *hooks)


def started(crd: Obj) -> Obj:
    head = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": crd["spec"]["names"]["kind"]}
    return {**head, "metadata": {"name": "cr-instance-1"}, "data": START}


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate custom resource [Conformance]"
)
def test_custom_objects_are_mutated(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    with defined(api, definition(scope="Namespaced")) as crd:
        mutate_custom_objects(webhook, crd)
        made = custom(api, crd, namespace).create(started(crd))
        assert made["data"] == {**START, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}


@conformance("[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should deny crd creation [Conformance]")
def test_definitions_are_denied(api: Api, webhook: SampleWebhook) -> None:
    mine = {"matchLabels": {"e2e": webhook.namespace}}
    hook = webhook.hook(
        "deny-crd-with-unwanted-label.k8s.io", "/crd", "customresourcedefinitions", group="apiextensions.k8s.io",
        version="*", objectSelector=mine,
    )  # fmt: skip
    webhook.register("validating", hook)
    crd = definition(scope="Namespaced")
    crd["metadata"]["labels"] = {"e2e": webhook.namespace, **BAD}
    assert "the crd contains unwanted label" in denial(definitions(api).create, crd)


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate custom resource with different"
    " stored version [Conformance]"
)
def test_custom_objects_of_another_stored_version_are_mutated(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    versions = [version("v1", storage=True), version("v2")]
    with defined(api, definition(scope="Namespaced", versions=versions)) as crd:
        mutate_custom_objects(webhook, crd)
        custom(api, crd, namespace).create(started(crd))
        now = [version("v1"), version("v2", storage=True)]
        definitions(api).patch(crd["metadata"]["name"], {"spec": {"versions": now}})
        add = [{"op": "add", "path": "/dummy", "value": "test"}]
        patched = custom(api, crd, namespace, "v2").patch("cr-instance-1", add, "json")
        assert patched["data"] == {**START, "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
        assert patched["dummy"] == "test"


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should mutate custom resource with pruning"
    " [Conformance]"
)
def test_mutated_custom_objects_are_pruned(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    known = {"mutation-start": {"type": "string"}, "mutation-stage-1": {"type": "string"}}
    schema = {"type": "object", "properties": {"data": {"type": "object", "properties": known}}}
    with defined(api, definition(schema, scope="Namespaced")) as crd:
        mutate_custom_objects(webhook, crd)
        made = custom(api, crd, namespace).create(started(crd))
        assert made["data"] == {**START, "mutation-stage-1": "yes"}


@conformance("[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should honor timeout [Conformance]")
def test_timeouts(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    config_maps = api.of("v1", "configmaps", namespace)
    configurations = api.of(ADMISSION, "validatingwebhookconfigurations")

    def attempt(policy: str, **more: Any) -> Obj:
        hook = webhook.hook(
            "allow-configmap-with-delay-webhook.k8s.io", "/always-allow-delay-5s", "configmaps",
            failurePolicy=policy, **more,
        )  # fmt: skip
        name = webhook.register("validating", hook)
        try:
            return config_maps.create(config_map())
        finally:
            configurations.delete(name)

    message = denial(attempt, "Fail", timeoutSeconds=1)
    assert "context deadline exceeded" in message
    assert "/always-allow-delay-5s?timeout=1s" in message
    attempt("Ignore", timeoutSeconds=1)
    attempt("Fail", timeoutSeconds=10)
    attempt("Fail")


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] patching/updating a validating webhook should work"
    " [Conformance]"
)
def test_a_validating_configuration_is_updated(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    name = webhook.register("validating", deny_config_maps(webhook))
    config_maps = api.of("v1", "configmaps", namespace)
    denial(config_maps.create, config_map(data=BAD))
    change_operations(api, "validatingwebhookconfigurations", name, "UPDATE")
    config_maps.create(config_map(data=BAD))
    patch_operations(api, "validatingwebhookconfigurations", name, "CREATE")
    denial(config_maps.create, config_map(data=BAD))


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] patching/updating a mutating webhook should work"
    " [Conformance]"
)
def test_a_mutating_configuration_is_updated(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    name = webhook.register("mutating", mutate_config_maps(webhook, 1))
    config_maps = api.of("v1", "configmaps", namespace)
    change_operations(api, "mutatingwebhookconfigurations", name, "UPDATE")
    assert config_maps.create(config_map(data=START))["data"] == START
    patch_operations(api, "mutatingwebhookconfigurations", name, "CREATE")
    assert config_maps.create(config_map(data=START))["data"] == {**START, "mutation-stage-1": "yes"}


def change_operations(api: Api, kind: str, name: str, operation: str) -> None:
    def change(obj: Obj) -> None:
        obj["webhooks"][0]["rules"][0]["operations"] = [operation]

    api.of(ADMISSION, kind).update(name, change)


def patch_operations(api: Api, kind: str, name: str, operation: str) -> None:
    before = api.of(ADMISSION, kind).get(name)
    patch = [{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": [operation]}]
    after = api.of(ADMISSION, kind).patch(name, patch, "json")
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] listing validating webhooks should work"
    " [Conformance]"
)
def test_validating_configurations_are_listed(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    mark = unique("list")
    for _ in range(10):
        webhook.register("validating", deny_config_maps(webhook), labels={"e2e-list-test-uuid": mark})
    configurations = api.of(ADMISSION, "validatingwebhookconfigurations")
    assert len(configurations.items(f"e2e-list-test-uuid={mark}")) == 10
    config_maps = api.of("v1", "configmaps", namespace)
    denial(config_maps.create, config_map(data=BAD))
    configurations.delete_collection(f"e2e-list-test-uuid={mark}")
    config_maps.create(config_map(data=BAD))


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] listing mutating webhooks should work [Conformance]"
)
def test_mutating_configurations_are_listed(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    mark = unique("list")
    for _ in range(10):
        webhook.register("mutating", mutate_config_maps(webhook, 1), labels={"e2e-list-test-uuid": mark})
    configurations = api.of(ADMISSION, "mutatingwebhookconfigurations")
    assert len(configurations.items(f"e2e-list-test-uuid={mark}")) == 10
    config_maps = api.of("v1", "configmaps", namespace)
    assert "mutation-stage-1" in config_maps.create(config_map(data=START))["data"]
    configurations.delete_collection(f"e2e-list-test-uuid={mark}")
    assert config_maps.create(config_map(data=START))["data"] == START


# -- conversion --------------------------------------------------------------------------------------------------------


def text(*names: str) -> Obj:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def converted(webhook: SampleWebhook) -> Obj:
    versions = [version("v1", text("hostPort"), storage=True), version("v2", text("host", "port"))]
    crd = definition(scope="Namespaced", versions=versions)
    hook = {"clientConfig": webhook.client_config("/crdconvert"), "conversionReviewVersions": ["v1", "v1beta1"]}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": hook}
    return crd


def instance(crd: Obj, name: str) -> Obj:
    head = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": crd["spec"]["names"]["kind"]}
    return {**head, "metadata": {"name": name}, "hostPort": "localhost:8080"}


def check_first(obj: Obj) -> None:
    assert obj["apiVersion"].endswith("/v1")
    assert obj["hostPort"] == "localhost:8080"
    assert "host" not in obj and "port" not in obj


def check_second(obj: Obj) -> None:
    assert obj["apiVersion"].endswith("/v2")
    assert (obj["host"], obj["port"]) == ("localhost", "8080")
    assert "hostPort" not in obj


@conformance(
    "[sig-api-machinery] CustomResourceConversionWebhook [Privileged:ClusterAdmin] should be able to convert from CR"
    " v1 to CR v2 [Conformance]"
)
def test_custom_objects_are_converted(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    with defined(api, converted(webhook)) as crd:
        custom(api, crd, namespace).create(instance(crd, "cr-instance-1"))
        check_second(custom(api, crd, namespace, "v2").get("cr-instance-1"))


@conformance(
    "[sig-api-machinery] CustomResourceConversionWebhook [Privileged:ClusterAdmin] should be able to convert a non"
    " homogeneous list of CRs [Conformance]"
)
def test_lists_of_mixed_versions_are_converted(api: Api, namespace: str, webhook: SampleWebhook) -> None:
    with defined(api, converted(webhook)) as crd:
        objects = custom(api, crd, namespace)
        objects.create(instance(crd, "cr-instance-1"))
        now = [version("v1", text("hostPort")), version("v2", text("host", "port"), storage=True)]
        definitions(api).patch(crd["metadata"]["name"], {"spec": {"versions": now}})
        objects.create(instance(crd, "cr-instance-2"))
        for seen, check in (("v1", check_first), ("v2", check_second)):
            items = custom(api, crd, namespace, seen).items()
            assert [item["metadata"]["name"] for item in items] == ["cr-instance-1", "cr-instance-2"]
            for item in items:
                check(item)
