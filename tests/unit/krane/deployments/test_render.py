"""A deployment as Kubernetes objects."""

from __future__ import annotations

import base64
import shutil
import subprocess

import pytest
from rendered_states import (
    OWNER,
    container,
    full_state,
    kinds,
    part,
    pod_spec,
    rendered,
    state,
    unused_fields,
    variables,
)

from shoal.errors import Invalid
from shoal.krane import labels
from shoal.krane.deployments.adopted import render_adopted
from shoal.krane.deployments.check import check
from shoal.krane.deployments.check_jobs import job_object
from shoal.krane.deployments.render import render
from shoal.krane.deployments.rendering import NEWEST, Rendering
from shoal.kube.labels import parse as parse_selector
from shoal.wire.fleet.v1 import cluster_pb as pb

SECRETS = {"PASSWORD": "hunter2"}
NOT_FOR_KUBERNETES = {
    "drift",  # what the agent does about changes, not what runs
    "taken_from",  # whose objects it may write
    "SealedSecret.wrapped_key",  # opened before
    "SealedSecret.ciphertext",
}


SCALED = {"autoscaling": pb.Autoscaling(min=2, max=5, cpu_percent=70, memory_percent=60)}
# Fields that a revision has only when it asks for them: the recorded objects of all rules are without
ASKED_FOR = {
    "pod_labels": {"team": "shop"},
    "adopted": pb.Adopted(deployment="web", uid="u-1", selector={"app": "web"}, autoscaler="web"),
}
LIVE = {"metadata": {"name": "web", "namespace": "shop-live", "labels": {"app": "web"}}, "spec": {}}


def test_every_field_of_the_wire_changes_what_is_rendered_or_is_listed_as_not_for_kubernetes():
    by_command = pb.HealthCheck(kind="exec", command=["true"])
    states = [full_state(), full_state(**SCALED, **ASKED_FOR), full_state(healthcheck=by_command)]
    unused = unused_fields(states, everything)
    assert unused == NOT_FOR_KUBERNETES


def everything(given: pb.DeploymentState):
    jobs = [job_object(given, each, OWNER, Rendering(NEWEST)) for each in given.check_jobs]
    adopted = render_adopted(given, OWNER, LIVE, None, "h1") if given.adopted is not None else None
    return rendered(given, **SECRETS), jobs, adopted


def test_the_state_of_that_test_has_every_field_set():
    everything = full_state(**SCALED, **ASKED_FOR)
    missing = [field.name for field in pb.DeploymentState.desc().fields if not getattr(everything, field.name)]
    assert not missing


def test_what_is_needed_comes_before_what_needs_it():
    made = rendered(full_state(**SCALED), **SECRETS)
    assert kinds(made) == [
        "Namespace", "ServiceAccount", "Secret", "Secret", "Deployment", "Service", "HorizontalPodAutoscaler",
        "PodDisruptionBudget", "NetworkPolicy",
    ]  # fmt: skip


def test_names_follow_from_the_state_alone():
    first, second = rendered(full_state(), **SECRETS), rendered(full_state(), **SECRETS)
    assert first == second
    assert {obj["metadata"]["name"] for obj in first.objects[1:]} == {"web-1-abc", "web-1-abc-registries"}


def test_what_is_watched_is_what_is_rendered():
    made = rendered(full_state(**SCALED), **SECRETS)
    watched = parse_selector(labels.selector(OWNER, "deployment"))
    for obj in made.objects[1:]:
        assert watched.matches(obj["metadata"]["labels"]), obj["kind"]
        assert labels.key_of(obj) == "deployment/dep_1"
    template = made.root["spec"]["template"]["metadata"]
    assert watched.matches(template["labels"])
    assert labels.key_of({"metadata": template}) == "deployment/dep_1"


def test_every_selector_finds_the_pods_of_this_deployment_and_no_others():
    made = rendered(full_state(**SCALED))
    other = rendered(full_state(deployment="dep_2", name="web-2-def", **SCALED)).root["spec"]["template"]["metadata"][
        "labels"
    ]
    own = made.root["spec"]["template"]["metadata"]["labels"]
    selectors = [
        made.root["spec"]["selector"]["matchLabels"],
        part(made, "Service")["spec"]["selector"],
        part(made, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        part(made, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in pod_spec(made)["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector.items() <= own.items()
        assert not selector.items() <= other.items()


def test_another_owner_has_other_labels_but_the_same_pods_are_not_selected_by_it():
    from dataclasses import replace

    mine = rendered(state()).root["spec"]["selector"]["matchLabels"]
    theirs = render(state(), replace(OWNER, fleet="flt_2"), {}).root["spec"]["template"]["metadata"]["labels"]
    assert not mine.items() <= theirs.items()


def test_where_an_autoscaler_decides_nobody_says_how_many_replicas():
    made = rendered(full_state(**SCALED))
    assert "replicas" not in made.root["spec"]
    scaler = part(made, "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 5)
    assert [each["resource"]["target"]["averageUtilization"] for each in scaler["metrics"]] == [70, 60]
    assert scaler["scaleTargetRef"]["name"] == made.root["metadata"]["name"]


def test_what_is_stopped_is_kept_with_no_replicas_and_no_autoscaler():
    made = rendered(full_state(running=False, **SCALED))
    assert made.root["spec"]["replicas"] == 0
    assert "HorizontalPodAutoscaler" not in kinds(made)


@pytest.mark.parametrize("replicas", [0, 1, 2, 50])
def test_the_budget_never_blocks_a_drain(replicas):
    budget = part(rendered(state(replicas=replicas)), "PodDisruptionBudget")["spec"]
    assert "minAvailable" not in budget
    assert -(-replicas * int(budget["maxUnavailable"].rstrip("%")) // 100) >= min(1, replicas)
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_pods_are_spread_over_nodes_and_zones_but_start_anyway():
    spread = pod_spec(rendered(state()))["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert {each["whenUnsatisfiable"] for each in spread} == {"ScheduleAnyway"}


def test_an_app_gets_no_account_and_does_not_learn_where_the_cluster_is():
    made = rendered(state())
    assert pod_spec(made)["automountServiceAccountToken"] is False
    assert part(made, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec(made)["enableServiceLinks"] is False
    assert variables(made)["KUBERNETES_SERVICE_HOST"] == ""


def test_an_app_knows_what_and_where_it_is():
    known = variables(rendered(full_state()))
    assert {name: known[name] for name in ("PORT", "SHOAL_DEPLOYMENT_ID", "SHOAL_APP", "SHOAL_PROJECT")} == {
        "PORT": "8080", "SHOAL_DEPLOYMENT_ID": "dep_1", "SHOAL_APP": "web", "SHOAL_PROJECT": "shop",
    }  # fmt: skip
    assert (known["SHOAL_ENVIRONMENT"], known["SHOAL_REGION"], known["SHOAL_REVISION"]) == ("live", "eu", "1")
    assert (known["SHOAL_GIT_SHA"], known["SHOAL_GIT_BRANCH"]) == ("abc123", "main")
    assert "SHOAL_INSTANCE_ID" in known


def test_an_app_cannot_give_our_variables_other_values():
    known = variables(rendered(state(env={"PORT": "1", "SHOAL_APP": "other", "SHOAL_X": "1", "MINE": "yes"})))
    assert (known["PORT"], known["SHOAL_APP"], known["MINE"]) == ("8080", "web", "yes")
    assert "SHOAL_X" not in known


def test_a_commit_message_is_not_filled_in():
    message = variables(rendered(full_state(git=pb.Git(message="use $(PORT)"))))["SHOAL_GIT_MESSAGE"]
    assert message == "use $$(PORT)"


def test_secrets_stand_in_a_secret_and_nowhere_else():
    made = rendered(full_state(), **SECRETS)
    assert part(made, "Secret")["data"] == {"PASSWORD": base64.b64encode(b"hunter2").decode()}
    rest = [obj for obj in made.objects if obj["kind"] != "Secret"]
    assert "hunter2" not in repr(rest) and base64.b64encode(b"hunter2").decode() not in repr(rest)
    assert container(made)["envFrom"] == [{"secretRef": {"name": "web-1-abc"}}]


def test_a_new_version_of_a_secret_rolls_the_pods_and_a_rewrapped_key_does_not():
    def annotations(**fields):
        secret = pb.SealedSecret(**{"secret": "sec_1", "version": 3, "variables": ["PASSWORD"], **fields})
        return rendered(full_state(secrets=[secret]), **SECRETS).root["spec"]["template"]["metadata"]["annotations"]

    assert annotations() != annotations(version=4)
    assert annotations() == annotations(wrapped_key=b"other")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "http", "path": "/up"}, {"httpGet": {"path": "/up", "port": 8080, "scheme": "HTTP"}}),
        ({"kind": "http", "port": 9000}, {"httpGet": {"path": "/", "port": 9000, "scheme": "HTTP"}}),
        ({"kind": "tcp"}, {"tcpSocket": {"port": 8080}}),
        ({"kind": "grpc"}, {"grpc": {"port": 8080}}),
        ({"kind": "exec", "command": ["check"]}, {"exec": {"command": ["check"]}}),
    ],
)
def test_a_health_check_becomes_probes(given, expected):
    made = container(rendered(state(healthcheck=pb.HealthCheck(**given))))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert expected.items() <= made[probe].items()


def test_an_app_leaves_traffic_long_before_it_is_restarted():
    made = container(rendered(state(healthcheck=pb.HealthCheck(kind="http", failures=2, period_seconds=5))))
    assert made["livenessProbe"]["failureThreshold"] > made["readinessProbe"]["failureThreshold"] == 2
    assert made["startupProbe"]["failureThreshold"] * made["startupProbe"]["periodSeconds"] >= 60


def test_without_a_health_check_there_are_no_probes():
    assert not {"startupProbe", "readinessProbe", "livenessProbe"} & container(rendered(state())).keys()


def test_an_app_still_answers_while_gateways_hear_that_it_ends():
    made = rendered(state(termination_seconds=20))
    drain_s = container(made)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert drain_s > 0
    assert pod_spec(made)["terminationGracePeriodSeconds"] == 20 + drain_s


def test_without_a_port_there_is_no_service_and_nothing_to_wait_for():
    made = rendered(state(port=0))
    assert "Service" not in kinds(made)
    assert "lifecycle" not in container(made)
    assert "PORT" not in variables(made)
    assert part(made, "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_another_signal_than_term_is_sent_only_to_the_first_process_of_the_app():
    hook = container(rendered(state(shutdown_signal="SIGINT", port=0)))["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[:2] == ["/bin/sh", "-c"] and "kill -s INT 1" in hook[2]
    # here process 1 is somebody else: it must be left alone, and the hook must say so by failing
    script = hook[2].replace("kill -s INT 1", "echo killed")
    ran = subprocess.run(
        ["sh", "-c", script],
        env={"SHOAL_DEPLOYMENT_ID": "dep_1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=10,
    )
    assert ran.returncode != 0 and b"killed" not in ran.stdout


def test_an_app_that_wants_to_be_killed_is_not_waited_for():
    assert (
        pod_spec(rendered(state(shutdown_signal="SIGKILL", termination_seconds=600)))["terminationGracePeriodSeconds"]
        < 10
    )


def test_quantities_are_written_as_the_server_would_write_them():
    resources = pb.Resources(cpu_millicores=2000, memory_mib=1024, ephemeral_mib=2048)
    made = container(rendered(state(resources=resources)))["resources"]
    expected = {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    assert made == {"requests": expected, "limits": expected}


def test_traffic_comes_from_gateways_and_from_the_same_environment():
    ingress = part(rendered(state()), "NetworkPolicy")["spec"]["ingress"]
    gateways, siblings = ingress[0]["from"]
    assert gateways["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "sentinel"}
    assert siblings["podSelector"]["matchLabels"]["shoal.dev/environment"] == "env_1"


@pytest.mark.parametrize(
    ("fields", "values", "at_fault"),
    [
        ({"deployment": ""}, {}, "deployment"),
        ({"name": "Not_A_Name"}, {}, "name"),
        ({"namespace": ""}, {}, "namespace"),
        ({"namespace": "kube-system"}, {}, "namespace"),
        ({"image": " "}, {}, "image"),
        ({"port": 70000}, {}, "port"),
        ({"protocol": "smtp"}, {}, "protocol"),
        ({"shutdown_signal": "INT; rm -rf /"}, {}, "shutdownSignal"),
        ({"env": {"A B": "1"}}, {}, "env[A B]"),
        ({}, {"1=2": "x"}, "secrets[1=2]"),
        ({"healthcheck": pb.HealthCheck(kind="smoke")}, {}, "healthcheck.kind"),
        ({"healthcheck": pb.HealthCheck(kind="exec")}, {}, "healthcheck.command"),
        ({"port": 0, "healthcheck": pb.HealthCheck(kind="tcp")}, {}, "healthcheck.port"),
        ({"autoscaling": pb.Autoscaling(min=0, max=2)}, {}, "autoscaling.min"),
        ({"autoscaling": pb.Autoscaling(min=3, max=2)}, {}, "autoscaling.max"),
    ],
)
def test_what_cannot_be_rendered_is_refused_with_the_field_before_anything_is_written(fields, values, at_fault):
    with pytest.raises(Invalid) as refused:
        check(state(**fields), values)
    assert at_fault in [error.field for error in refused.value.errors]
    assert all(value not in str(refused.value) for value in values.values() if len(value) > 1)


def test_a_complete_state_is_accepted():
    check(full_state(**SCALED), SECRETS)
