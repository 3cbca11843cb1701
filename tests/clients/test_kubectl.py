"""kubectl against a real server: the daily commands on built-in and custom kinds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.clients.conftest import Kubectl, a_definition, a_widget, finished

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}


def as_json(text: str) -> Any:
    return json.loads(text)


def test_create_get_delete_of_a_deployment(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    header, row = kubectl("get", "deploy").splitlines()
    assert header.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert row.split()[:2] == ["web", "0/3"]
    wide = kubectl("get", "deploy", "-o", "wide")
    assert "CONTAINERS" in wide and "app=web" in wide
    assert 'deployment.apps "web" deleted' in kubectl("delete", "deploy", "web")
    assert "NotFound" in kubectl.fails("get", "deploy", "web")


def test_apply_configures_then_reports_unchanged(kubectl: Kubectl) -> None:
    manifest = json.dumps(CONFIG)
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest)
    changed = json.dumps({**CONFIG, "data": {"b": "2"}})
    differs = kubectl.run("diff", "-f", "-", stdin=changed)
    assert differs.returncode == 1 and "+  b:" in differs.stdout
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    assert as_json(kubectl("get", "cm", "settings", "-o", "json"))["data"] == {"b": "2"}
    assert kubectl.run("diff", "-f", "-", stdin=changed).returncode == 0


def test_apply_patches_lists_by_their_merge_keys(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("set", "env", "deploy/web", "A=1", "B=2")
    kubectl("set", "image", "deploy/web", "nginx=nginx:2")
    container = as_json(kubectl("get", "deploy", "web", "-o", "json"))["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "nginx:2"
    assert {item["name"]: item["value"] for item in container["env"]} == {"A": "1", "B": "2"}


def test_server_side_apply_conflicts_until_forced(kubectl: Kubectl) -> None:
    manifest = json.dumps(CONFIG)
    assert "serverside-applied" in kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=manifest)
    other = json.dumps({**CONFIG, "data": {"a": "other"}})
    refused = kubectl.fails("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=other)
    assert 'conflict with "one": .data.a' in refused
    kubectl("apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", stdin=other)
    found = as_json(kubectl("get", "cm", "settings", "-o", "json", "--show-managed-fields"))
    assert found["data"] == {"a": "other"}
    owners = {e["manager"]: e["fieldsV1"] for e in found["metadata"]["managedFields"]}
    assert owners["two"] == {"f:data": {"f:a": {}}}


def test_client_side_apply_migrates_to_server_side(kubectl: Kubectl) -> None:
    manifest = json.dumps(CONFIG)
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    found = as_json(kubectl("get", "cm", "settings", "-o", "json", "--show-managed-fields"))
    assert "kubectl-client-side-apply" not in {e["manager"] for e in found["metadata"]["managedFields"]}


def test_patch_label_annotate_scale_replace(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx")
    assert "patched" in kubectl("patch", "deploy", "web", "-p", '{"spec":{"minReadySeconds":5}}')
    assert "patched" in kubectl("patch", "deploy", "web", "--type=merge", "-p", '{"spec":{"paused":true}}')
    operation = '[{"op":"replace","path":"/spec/paused","value":false}]'
    assert "patched" in kubectl("patch", "deploy", "web", "--type=json", "-p", operation)
    kubectl("label", "deploy", "web", "tier=front")
    kubectl("annotate", "deploy", "web", "note=hello")
    kubectl("scale", "deploy", "web", "--replicas=4")
    kubectl("scale", "deploy", "web", "--current-replicas=4", "--replicas=2")
    found = as_json(kubectl("get", "deploy", "web", "-o", "json"))
    assert found["spec"]["minReadySeconds"] == 5 and found["spec"]["replicas"] == 2
    assert found["metadata"]["labels"]["tier"] == "front" and found["metadata"]["annotations"]["note"] == "hello"
    found["spec"]["replicas"] = 7
    assert "replaced" in kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert kubectl("get", "deploy", "-l", "tier=front", "-o", "jsonpath={.items[0].spec.replicas}") == "7"
    assert "Conflict" in kubectl.fails("replace", "-f", "-", stdin=json.dumps(found))


def test_explain_reads_the_published_schemas(kubectl: Kubectl) -> None:
    text = kubectl("explain", "deployment.spec.strategy.rollingUpdate")
    assert "maxSurge" in text and "GROUP:      apps" in text
    assert "restartPolicy" in kubectl("explain", "pod.spec", "--recursive")


def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("api-resources", "--no-headers").splitlines()]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in lines
    assert ["nodes", "no", "v1", "false", "Node"] in lines  # metrics.k8s.io has nodes too, once there is a Node
    assert "apps/v1" in kubectl("api-versions").split()


def test_edit_writes_what_the_editor_left(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=a=before")
    kubectl("edit", "cm", "settings", env={"KUBE_EDITOR": "sed -i s/before/after/"})
    assert as_json(kubectl("get", "cm", "settings", "-o", "json"))["data"] == {"a": "after"}


def test_wait_returns_when_the_condition_comes(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings")
    with (
        kubectl.started("wait", "--for=jsonpath={.data.done}=yes", "cm/settings", "--timeout=20s") as waiting,
        kubectl.started("wait", "--for=delete", "cm/settings", "--timeout=20s") as deleting,
    ):
        kubectl("patch", "cm", "settings", "-p", '{"data":{"done":"yes"}}')
        assert "condition met" in finished(waiting)
        kubectl("delete", "cm", "settings")
        finished(deleting)
    assert "timed out waiting" in kubectl.fails(
        "wait", "--for=condition=Ready", "ns", kubectl.namespace, "--timeout=1s"
    )


def test_get_watch_shows_changes_as_they_happen(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=a=1")
    with kubectl.started("get", "cm", "settings", "-w", "--output-watch-events", "--no-headers") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["ADDED", "settings", "1"]
        kubectl("patch", "cm", "settings", "-p", '{"data":{"b":"2"}}')
        assert watching.stdout.readline().split()[:3] == ["MODIFIED", "settings", "2"]
        kubectl("delete", "cm", "settings")
        assert watching.stdout.readline().split()[:2] == ["DELETED", "settings"]


def test_validation_is_strict_by_default(kubectl: Kubectl) -> None:
    bad = {**CONFIG, "dota": {"a": "1"}}
    assert 'unknown field "dota"' in kubectl.fails("create", "-f", "-", stdin=json.dumps(bad))
    assert 'unknown field "dota"' in kubectl.run("create", "--validate=warn", "-f", "-", stdin=json.dumps(bad)).stderr


def test_dry_run_on_the_server_changes_nothing(kubectl: Kubectl) -> None:
    assert "created (server dry run)" in kubectl("create", "-f", "-", "--dry-run=server", stdin=json.dumps(CONFIG))
    assert "NotFound" in kubectl.fails("get", "cm", "settings")


def test_auth_questions_and_tokens(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    assert "*.*" in kubectl("auth", "can-i", "--list")
    assert kubectl("create", "token", "default").count(".") == 2


def test_cordon_drain_and_evict(kubectl: Kubectl) -> None:
    node = f"node-{kubectl.namespace}"[:60].rstrip("-")
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
    kubectl("cordon", node)
    assert as_json(kubectl("get", "node", node, "-o", "json"))["spec"]["unschedulable"] is True
    kubectl("taint", "node", node, "a=b:NoSchedule")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    drain = kubectl.run("drain", node, "--force", "--grace-period=0", "--timeout=20s")
    assert drain.returncode == 0, drain.stderr
    assert "evicted" in drain.stdout
    kubectl("uncordon", node)
    kubectl("delete", "node", node)


def test_custom_resources_behave_like_built_in_ones(kubectl: Kubectl, group: str) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(a_definition(group)))
    kubectl("wait", "--for=condition=established", f"crd/widgets.{group}", "--timeout=20s")
    widget = a_widget(group, "w", size=5)
    resource = f"widgets.v1.{group}"
    assert "created" in kubectl("apply", "-f", "-", stdin=json.dumps(widget))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=json.dumps(widget))
    header, row = kubectl("get", resource).splitlines()
    assert header.split() == ["NAME", "SIZE"] and row.split() == ["w", "5"]
    assert as_json(kubectl("get", resource, "w", "-o", "json"))["spec"]["color"] == "red"
    refused = kubectl.fails("apply", "-f", "-", stdin=json.dumps(a_widget(group, "w", size=0)))
    assert "spec.size" in refused and "greater than or equal to 1" in refused
    patch = ("patch", resource, "w", "--type=merge", "-p")
    assert "size must stay under 100" in kubectl.fails(*patch, '{"spec":{"size":100}}')
    kubectl(*patch, '{"spec":{"replicas":1}}')
    kubectl("scale", resource, "w", "--replicas=3")
    assert kubectl("get", resource, "w", "-o", "jsonpath={.spec.replicas}") == "3"
    kubectl(*patch, '{"status":{"phase":"Good"}}', "--subresource=status")
    assert kubectl("get", resource, "w", "-o", "jsonpath={.status.phase}/{.metadata.generation}") == "Good/3"
    kubectl("label", resource, "w", "tier=front")
    kubectl("annotate", resource, "w", "note=hello")
    with kubectl.started(
        "get", resource, "-w", "-l", "tier=front", "--output-watch-events", "--no-headers"
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split() == ["ADDED", "w", "5"]
        kubectl(*patch, '{"spec":{"size":6}}')
        assert watching.stdout.readline().split() == ["MODIFIED", "w", "6"]
        kubectl("label", resource, "w", "tier-")  # leaves the selection
        assert watching.stdout.readline().split() == ["DELETED", "w", "6"]
    kubectl("delete", resource, "w")
    assert "NotFound" in kubectl.fails("get", resource, "w")


def test_custom_resources_with_explain_diff_edit_replace_and_apply(kubectl: Kubectl, group: str) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(a_definition(group)))
    resource = f"widgets.v1.{group}"
    text = kubectl("explain", "widgets.spec", f"--api-version={group}/v1")
    assert "color" in text and "<string>" in text and f"GROUP:      {group}" in text
    widget = json.dumps(a_widget(group, "w", size=5))
    kubectl("apply", "--server-side", "-f", "-", "--field-manager=one", stdin=widget)
    other = json.dumps(a_widget(group, "w", size=6))
    refused = kubectl.fails("apply", "--server-side", "-f", "-", "--field-manager=two", stdin=other)
    assert 'conflict with "one": .spec.size' in refused
    differs = kubectl.run("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=other)
    assert differs.returncode == 1 and "+  size: 6" in differs.stdout
    kubectl("apply", "--server-side", "-f", "-", "--field-manager=two", "--force-conflicts", stdin=other)
    kubectl("edit", resource, "w", env={"KUBE_EDITOR": "sed -i s/red/blue/"})
    found = as_json(kubectl("get", resource, "w", "-o", "json"))
    assert found["spec"] == {"size": 6, "color": "blue"}
    found["spec"]["size"] = 7
    assert "replaced" in kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert 'unknown field "spec.sise"' in kubectl.fails(
        "create", "-f", "-", stdin=json.dumps(a_widget(group, "v", size=1, sise=1))
    )
    kubectl("delete", "crd", f"widgets.{group}", "--timeout=20s")
    assert "the server doesn't have a resource type" in kubectl.fails(
        "get", resource, "--cache-dir", str(kubectl.home / "no-memory")
    )


@pytest.mark.parametrize(
    "kind",
    [
        "secret generic s --from-literal=k=v",
        "role r --verb=get --resource=pods",
        "job j --image=i",
        "cronjob c --image=i --schedule=*/5_*_*_*_*",
        "service clusterip svc --tcp=80",
        "quota q --hard=pods=2",
        "serviceaccount sa",
        "ingress i --rule=example.com/=svc:80",
        "poddisruptionbudget pdb --selector=a=b --min-available=1",
        "configmap cm --from-literal=a=b",
    ],
)
def test_create_commands_of_many_kinds_are_accepted(kubectl: Kubectl, kind: str) -> None:
    words = [word.replace("_", " ") for word in kind.split()]
    assert "created" in kubectl("create", *words)


def test_the_namespace_is_gone_with_everything_in_it(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace[:50]}-x"
    kubectl("create", "namespace", name)
    kubectl("-n", name, "create", "configmap", "c")
    started = time.monotonic()
    kubectl("delete", "namespace", name, "--timeout=30s")
    assert time.monotonic() - started < 30
    assert "NotFound" in kubectl.fails("get", "namespace", name)


def test_label_and_annotate_overwrite_and_remove(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    kubectl("label", "cm", "c", "a=1", "b=2")
    assert "--overwrite is false" in kubectl.fails("label", "cm", "c", "a=2")
    kubectl("label", "cm", "c", "a=2", "b-", "--overwrite")
    kubectl("annotate", "cm", "c", "x=1")
    kubectl("annotate", "cm", "c", "x-", "y=2")
    metadata = as_json(kubectl("get", "cm", "c", "-o", "json"))["metadata"]
    assert metadata["labels"] == {"a": "2"} and metadata["annotations"] == {"y": "2"}


def test_replace_force_deletes_and_creates_again(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(CONFIG))
    before = kubectl("get", "cm", "settings", "-o", "jsonpath={.metadata.uid}")
    kubectl("replace", "--force", "-f", "-", stdin=json.dumps(CONFIG))
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.metadata.uid}") != before


def test_apply_prunes_objects_that_left_the_set(kubectl: Kubectl) -> None:
    def a_set(*names: str) -> str:
        labels = {"set": "one"}
        items = [{**CONFIG, "metadata": {"name": name, "labels": labels}} for name in names]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    kubectl("apply", "-f", "-", stdin=a_set("a", "b"))
    prune = ("--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/b pruned" in kubectl("apply", "-f", "-", *prune, stdin=a_set("a"))
    assert kubectl("get", "cm", "-l", "set=one", "-o", "name").split() == ["configmap/a"]


def test_output_forms(kubectl: Kubectl) -> None:
    for name, weight in (("a", "2"), ("b", "1")):
        kubectl("create", "configmap", name, f"--from-literal=weight={weight}")
        kubectl("label", "cm", name, "shown=yes")
    get = ("get", "cm", "-l", "shown=yes")
    assert kubectl(*get, "--sort-by=.data.weight", "-o", "name").split() == ["configmap/b", "configmap/a"]
    columns = kubectl(*get, "-o", "custom-columns=N:.metadata.name,W:.data.weight")
    assert [line.split() for line in columns.splitlines()] == [["N", "W"], ["a", "2"], ["b", "1"]]
    assert "\nkind: ConfigMap\n" in kubectl("get", "cm", "a", "-o", "yaml")
    assert kubectl("get", "cm", "--field-selector=metadata.name=a", "-o", "name").split() == ["configmap/a"]
    assert kubectl(*get, "--chunk-size=1", "-o", "name").split() == ["configmap/a", "configmap/b"]
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_describe_shows_an_object_and_its_events(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx")
    found = as_json(kubectl("get", "deploy", "web", "-o", "json"))
    reference = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "namespace": kubectl.namespace}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1"},
        "involvedObject": {**reference, "uid": found["metadata"]["uid"]},
        "reason": "Scaled",
        "message": "from a test",
        "type": "Normal",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    text = kubectl("describe", "deploy", "web")
    assert "RollingUpdate" in text and "Scaled" in text and "from a test" in text
    assert "from a test" in kubectl("events", "--for=deployment/web")
    assert "default" in kubectl("describe", "serviceaccount", "default")
    assert "Active" in kubectl("describe", "namespace", kubectl.namespace)


def test_rollout_commands(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("rollout", "pause", "deploy/web")
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.paused}") == "true"
    kubectl("rollout", "resume", "deploy/web")
    kubectl("rollout", "restart", "deploy/web")
    found = as_json(kubectl("get", "deploy", "web", "-o", "json"))
    assert "kubectl.kubernetes.io/restartedAt" in found["spec"]["template"]["metadata"]["annotations"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"status": {"observedGeneration": found["metadata"]["generation"], **counts}}
    with kubectl.started("rollout", "status", "deploy/web", "--timeout=20s") as watching:
        kubectl("patch", "deploy", "web", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        assert "successfully rolled out" in finished(watching)


def test_run_expose_autoscale_and_set(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=nginx", "--port=80", "--labels=app=p")
    assert "exposed" in kubectl("expose", "pod", "p", "--port=80", "--name=svc")
    assert as_json(kubectl("get", "svc", "svc", "-o", "json"))["spec"]["selector"] == {"app": "p"}
    kubectl("create", "deployment", "web", "--image=nginx")
    assert "autoscaled" in kubectl("autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu-percent=50")
    assert kubectl("get", "hpa", "web", "-o", "jsonpath={.spec.maxReplicas}") == "3"
    kubectl("set", "resources", "deploy/web", "--limits=cpu=200m,memory=64Mi")
    kubectl("set", "serviceaccount", "deploy/web", "default")
    spec = as_json(kubectl("get", "deploy", "web", "-o", "json"))["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "200m", "memory": "64Mi"}
    assert spec["serviceAccountName"] == "default"
    listed = kubectl("get", "all", "-o", "name").split()
    assert {"pod/p", "service/svc", "deployment.apps/web", "horizontalpodautoscaler.autoscaling/web"} <= set(listed)


def test_delete_by_selector_all_and_file(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "secret", "generic", name)
    kubectl("label", "secret", "a", "go=yes")
    kubectl("delete", "secret", "-l", "go=yes")
    assert kubectl("get", "secret", "-o", "name").split() == ["secret/b", "secret/c"]
    manifest = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})
    kubectl("delete", "-f", "-", stdin=manifest)
    kubectl("delete", "-f", "-", "--ignore-not-found", stdin=manifest)
    kubectl("delete", "secret", "--all")
    assert "No resources found" in kubectl.run("get", "secret").stderr


def test_a_finalizer_holds_a_delete_until_it_is_removed(kubectl: Kubectl) -> None:
    held = {**CONFIG, "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    kubectl("create", "-f", "-", stdin=json.dumps(held))
    with kubectl.started("delete", "cm", "held", "--timeout=20s") as deleting:
        kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "cm/held", "--timeout=20s")
        kubectl("patch", "cm", "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        finished(deleting)


def test_version_and_cluster_info(kubectl: Kubectl) -> None:
    version = as_json(kubectl("version", "-o", "json"))
    assert version["serverVersion"]["major"] == "1"
    assert "is running at" in kubectl("cluster-info")
