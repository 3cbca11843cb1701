"""kubectl against a real server: whoami, can-i, roles and bindings, and the messages of refusals."""

from __future__ import annotations

import json

from tests.clients.conftest import Kubectl


def test_whoami_shows_the_user_and_the_impersonated_user(kubectl: Kubectl) -> None:
    assert "system:masters" in kubectl("auth", "whoami")
    shown = kubectl("auth", "whoami", "--as=jane", "--as-group=devs")
    assert "Username" in shown and "jane" in shown and "[devs system:authenticated]" in shown


def test_can_i_lists_all_for_administrators_and_little_for_others(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("auth", "can-i", "--list").splitlines()]
    assert lines[0] == ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"]
    assert ["*.*", "[]", "[]", "[*]"] in lines and ["[*]", "[]", "[*]"] in lines
    lines = [line.split() for line in kubectl("auth", "can-i", "--list", "--as=bob").splitlines()]
    assert ["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"] in lines
    assert ["[/api/*]", "[]", "[get]"] in lines and ["*.*", "[]", "[]", "[*]"] not in lines


def test_can_i_answers_for_another_user(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    refused = kubectl.run("auth", "can-i", "create", "pods", "--as=bob")
    assert refused.returncode == 1 and refused.stdout == "no\n"
    kubectl("create", "rolebinding", "bob", "--clusterrole=edit", "--user=bob")
    assert kubectl("auth", "can-i", "create", "pods", "--as=bob") == "yes\n"
    assert kubectl.run("auth", "can-i", "create", "roles", "--as=bob").stdout == "no\n"
    assert kubectl("auth", "can-i", "get", "/healthz", "--as=bob") == "yes\n"


def test_roles_and_bindings_made_by_kubectl_count(kubectl: Kubectl) -> None:
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps", "--resource-name=settings")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kubectl.namespace}:default")
    account = f"--as=system:serviceaccount:{kubectl.namespace}:default"
    kubectl("create", "configmap", "settings", "--from-literal=a=1")
    assert "settings" in kubectl("get", "configmap", "settings", account)
    refused = kubectl.fails("get", "configmaps", account)
    assert (
        f'Error from server (Forbidden): configmaps is forbidden: User "system:serviceaccount:{kubectl.namespace}:default" '
        f'cannot list resource "configmaps" in API group "" in the namespace "{kubectl.namespace}"'
    ) in refused
    name = f"pods-{kubectl.namespace}"
    kubectl("create", "clusterrole", name, "--verb=get", "--resource=pods", "--resource=pods/status")
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=watchers")
    made = json.loads(kubectl("get", "clusterrole", name, "-o", "json"))
    assert made["rules"] == [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]}]
    assert "NotFound" in kubectl.fails("get", "pod", "x", "--as=w", "--as-group=watchers")


def test_a_user_cannot_grant_more_rights_than_they_have(kubectl: Kubectl) -> None:
    kubectl("create", "rolebinding", "ann", "--clusterrole=admin", "--user=ann")
    kubectl("create", "rolebinding", "fine", "--clusterrole=view", "--user=eve", "--as=ann")
    refused = kubectl.fails("create", "rolebinding", "all", "--clusterrole=cluster-admin", "--user=ann", "--as=ann")
    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in refused


def test_aggregated_roles_have_rules_and_auth_reconcile_creates_roles(kubectl: Kubectl) -> None:
    admin = kubectl("get", "clusterrole", "admin", "-o", "yaml")
    assert "aggregationRule" in admin and "- rolebindings" in admin
    manifest = json.dumps(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r", "namespace": kubectl.namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        }
    )
    assert "reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=manifest)
    assert "r" in kubectl("get", "roles")
