"""The pod template of a deployment: containers, probes, shutdown and spreading; pure."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.krane.deployments.registries import registries_name
from shoal.krane.deployments.rendering import Rendering
from shoal.krane.labels import SECRETS, TOPOLOGY_KEY_HOST, TOPOLOGY_KEY_ZONE
from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

CONTAINER = "app"
CHECK_CONTAINER = "check"
PORT_NAME = "http"
DRAIN_S = 5  # a pod that is being ended still answers for this long: gateways need to hear of it first
TERMINATION_S = 30
DEFAULT_CPU_MILLICORES = 50  # asked for, not a limit, where the app says nothing
DEFAULT_MEMORY_MIB = 64
DEFAULT_EPHEMERAL_MIB = 1024  # a limit: one pod must not fill the disk of its node
STARTING = ("", "ContainerCreating", "PodInitializing")  # reasons of a container to wait that are no fault

_CHECK_GRACE_S = 5
_START_S = 300  # how long a start may take before the container counts as failed
_LIVENESS_PATIENCE = 3  # times as many failures as make it unready: it leaves traffic long before it is restarted
_PERIOD_S, _TIMEOUT_S, _FAILURES = 10, 1, 3
_RESERVED = "SHOAL_"
_CLUSTER_VARIABLES = (
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
    "KUBERNETES_PORT",
)


def template(
    state: pb.DeploymentState, labels: Mapping[str, str], selector: Mapping[str, str], secrets: str, how: Rendering
) -> Obj:
    """``secrets`` is a digest of the secrets' versions: a change starts new pods."""
    about: Obj = {"labels": dict(labels)}
    if secrets:
        about["annotations"] = {SECRETS: secrets}
    drain_s = _drain_s(state)
    own: Obj = {
        "topologySpreadConstraints": [spread(key, selector) for key in (TOPOLOGY_KEY_HOST, TOPOLOGY_KEY_ZONE)],
        "containers": [_container(state, drain_s, bool(secrets), how)],
    }
    return {"metadata": about, "spec": _spec(state, how, _grace_s(state, drain_s), own)}


def check_spec(state: pb.DeploymentState, job: pb.CheckJob, how: Rendering) -> Obj:
    """The pod of a check that runs beside a deployment, with its variables but without its secrets."""
    own = _own_variables(state) | {
        "SHOAL_CHECK": job.check,
        "SHOAL_CANDIDATE_HOST": f"{state.name}.{state.namespace}.svc",
    }
    made: Obj = {
        "name": CHECK_CONTAINER,
        "image": job.image,
        "env": [{"name": name, "value": value} for name, value in sorted((dict(job.env) | own).items())],
        "resources": _resources(job.resources),
        "securityContext": _security(state.security or pb.Security(), how),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # of a failure, the last lines are in the pod's status
    }
    if job.command:
        made["command"] = list(job.command)
    if job.args:
        made["args"] = list(job.args)
    return _spec(state, how, _CHECK_GRACE_S, {"restartPolicy": "Never", "containers": [made]})


def _spec(state: pb.DeploymentState, how: Rendering, grace_s: int, own: Obj) -> Obj:
    """What all pods of a deployment have in common, and what is its own."""
    spec: Obj = {
        "serviceAccountName": state.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": _pod_security(state.security or pb.Security(), how),
        **own,
    }
    if state.registries and how.version > 1:
        spec["imagePullSecrets"] = [{"name": registries_name(state.name)}]
    if state.node_selector:
        spec["nodeSelector"] = dict(sorted(state.node_selector.items()))
    if state.tolerations:
        spec["tolerations"] = [_toleration(each) for each in state.tolerations]
    return spec


def spread(topology_key: str, selector: Mapping[str, str]) -> Obj:
    """Spread evenly, but a full place does not keep pods from starting elsewhere."""
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(selector)},
    }


def cpu(millicores: int) -> str:
    return quantity.canonical(f"{millicores}m")


def mib(amount: int) -> str:
    return quantity.canonical(f"{amount}Mi")


def _container(state: pb.DeploymentState, drain_s: int, has_secrets: bool, how: Rendering) -> Obj:
    made: Obj = {
        "name": CONTAINER,
        "image": state.image,
        "env": _environment(state),
        "resources": _resources(state.resources),
        "securityContext": _security(state.security or pb.Security(), how),
    }
    if state.command:
        made["command"] = list(state.command)
    if state.args:
        made["args"] = list(state.args)
    if state.port:
        made["ports"] = [{"name": PORT_NAME, "containerPort": state.port, "protocol": "TCP"}]
    if has_secrets:
        made["envFrom"] = [{"secretRef": {"name": state.name}}]
    if hook := _before_stop(state, drain_s):
        made["lifecycle"] = {"preStop": hook}
    return made | _probes(state)


# what it may do


def _pod_security(given: pb.Security, how: Rendering) -> Obj:
    if how.version == 1:
        return {"seccompProfile": {"type": "RuntimeDefault"}}
    made: Obj = {"seccompProfile": {"type": "Unconfined" if given.unconfined else "RuntimeDefault"}}
    if given.run_as_non_root or how.non_root:
        made["runAsNonRoot"] = True
    if given.run_as_user:
        made["runAsUser"] = given.run_as_user
    return made


def _security(given: pb.Security, how: Rendering) -> Obj:
    if how.version == 1:
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}
    capabilities: Obj = {"drop": ["ALL"]}
    if given.capabilities:
        capabilities["add"] = sorted(given.capabilities)
    return {"allowPrivilegeEscalation": given.privilege_escalation, "capabilities": capabilities}


# variables


def _environment(state: pb.DeploymentState) -> list[Obj]:
    """Ours first, so that the app's may refer to them; the app cannot give ours other values."""
    own = _own_variables(state)
    theirs = {
        name: value for name, value in sorted(state.env.items()) if name not in own and not name.startswith(_RESERVED)
    }
    instance = {
        "name": "SHOAL_INSTANCE_ID",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
    }
    blanked = {
        name: "" for name in _CLUSTER_VARIABLES if name not in theirs
    }  # where the cluster is, is not their business
    plain = [{"name": name, "value": value} for name, value in (own | blanked | theirs).items()]
    return [instance, *plain]


def _own_variables(state: pb.DeploymentState) -> dict[str, str]:
    git = state.git or pb.Git()
    own = {
        "SHOAL_DEPLOYMENT_ID": state.deployment,
        "SHOAL_APP": state.app_name or state.app,
        "SHOAL_PROJECT": state.project_name or state.project,
        "SHOAL_ENVIRONMENT": state.environment_name or state.environment,
        "SHOAL_REGION": state.region,
        "SHOAL_REVISION": str(state.revision),
        "SHOAL_GIT_SHA": git.sha,
        "SHOAL_GIT_BRANCH": git.branch,
        "SHOAL_GIT_REPOSITORY": git.repository,
        "SHOAL_GIT_MESSAGE": git.message,
    }
    if state.port:
        own["PORT"] = str(state.port)
    return {name: value.replace("$(", "$$(") for name, value in own.items()}  # as it is, nothing to be filled in


# resources


def _resources(given: pb.Resources | None) -> Obj:
    """What is asked for is given and not exceeded: a percentage of an autoscaler is one of what the app asked for."""
    given = given or pb.Resources()
    requests = {
        "cpu": cpu(given.cpu_millicores or DEFAULT_CPU_MILLICORES),
        "memory": mib(given.memory_mib or DEFAULT_MEMORY_MIB),
    }
    limits = {"ephemeral-storage": mib(given.ephemeral_mib or DEFAULT_EPHEMERAL_MIB)}
    if given.cpu_millicores:
        limits["cpu"] = requests["cpu"]
    if given.memory_mib:
        limits["memory"] = requests["memory"]
    if given.ephemeral_mib:
        requests["ephemeral-storage"] = limits["ephemeral-storage"]
    else:
        requests["ephemeral-storage"] = "0"  # else the limit would be asked for
    return {"requests": requests, "limits": limits}


# probes


def _probes(state: pb.DeploymentState) -> Obj:
    check = state.healthcheck
    if check is None or not check.kind:
        return {}
    handler = _handler(state, check)
    period_s = check.period_seconds or _PERIOD_S
    timing = {"timeoutSeconds": check.timeout_seconds or _TIMEOUT_S, "periodSeconds": period_s}
    failures = check.failures or _FAILURES
    starting: Obj = {**handler, **timing, "periodSeconds": 1, "failureThreshold": _START_S}
    if check.initial_delay_seconds:
        starting["initialDelaySeconds"] = check.initial_delay_seconds
    return {
        "startupProbe": starting,
        "readinessProbe": {**handler, **timing, "failureThreshold": failures},
        "livenessProbe": {**handler, **timing, "failureThreshold": failures * _LIVENESS_PATIENCE},
    }


def _handler(state: pb.DeploymentState, check: pb.HealthCheck) -> Obj:
    port = check.port or state.port
    match check.kind:
        case "http":
            return {"httpGet": {"path": check.path or "/", "port": port, "scheme": "HTTP"}}
        case "tcp":
            return {"tcpSocket": {"port": port}}
        case "grpc":
            return {"grpc": {"port": port}}
        case _:
            return {"exec": {"command": list(check.command)}}


# the end


def _drain_s(state: pb.DeploymentState) -> int:
    """How long it still answers; what takes no traffic need not."""
    return min(DRAIN_S, (state.termination_seconds or TERMINATION_S) // 2) if state.port else 0


def _grace_s(state: pb.DeploymentState, drain_s: int) -> int:
    if state.shutdown_signal == "SIGKILL":
        return drain_s + 1  # then the kubelet kills it; from inside, no process can kill the first one
    return drain_s + (state.termination_seconds or TERMINATION_S)


def _before_stop(state: pb.DeploymentState, drain_s: int) -> Obj | None:
    signal = state.shutdown_signal.removeprefix("SIG")
    if signal in ("", "TERM", "KILL"):
        return {"sleep": {"seconds": drain_s}} if drain_s else None
    # Only the app's own first process is signalled, known by its variables: where containers share the machine's
    # processes, process 1 belongs to another program. It is then left alone until its time is up: no TERM comes on top.
    script = (
        f"sleep {drain_s}; "
        'tr "\\0" "\\n" </proc/1/environ | grep -qx "SHOAL_DEPLOYMENT_ID=$SHOAL_DEPLOYMENT_ID" && '
        f"kill -s {signal} 1 && sleep {state.termination_seconds or TERMINATION_S}"
    )
    return {"exec": {"command": ["/bin/sh", "-c", script]}}


def _toleration(given: pb.Toleration) -> Obj:
    made = {"key": given.key, "operator": given.operator, "value": given.value, "effect": given.effect}
    return {name: value for name, value in made.items() if value}
