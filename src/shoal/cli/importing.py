"""Writes an App for a Deployment that runs, from the objects as their cluster has them; pure.

What an App cannot say is found and named: ``obstacles`` would change what runs if they were left out (volumes, a second
container, variables from elsewhere), ``notes`` would not, or an App does it in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.cli.adopting import ImportedApp, adoption, labels_for, selecting
from shoal.kube.objects import Obj

API_VERSION = "shoal.dev/v1"
_PROBES = ("httpGet", "tcpSocket", "grpc", "exec")
_NOT_OURS = ("kubernetes.io/", "k8s.io/", "helm.sh/", "argocd.argoproj.io/", "shoal.dev/", "pod-template-hash")
_POD_FIELDS = {  # of a pod's spec, which an App cannot say
    "hostNetwork": "the host's network", "hostPID": "the host's processes", "hostIPC": "the host's IPC",
    "affinity": "affinity", "runtimeClassName": "a runtime class", "hostAliases": "host aliases",
    "dnsConfig": "DNS settings",
    "initContainers": "init containers", "ephemeralContainers": "ephemeral containers", "subdomain": "a subdomain",
}  # fmt: skip
_DONE_OTHERWISE = {  # of a pod's spec, which the agent does in its own way
    "topologySpreadConstraints": "spreading over nodes and zones is always on",
    "priorityClassName": "priorities are not imported",
    "imagePullSecrets": "credentials of registries are not imported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlace:
    """Where the App is to be."""

    project: str
    environment: str
    region: str
    name: str = ""  # empty: the Deployment's
    cluster: str = ""  # the Deployment is to be adopted in this one; empty: the App gets instances of its own


def app_of(
    deployment: Obj, place: ImportPlace, *, services: Iterable[Obj] = (), autoscalers: Sequence[Obj] = ()
) -> ImportedApp:
    """``services`` and ``autoscalers`` are all of the Deployment's namespace."""
    about, spec = deployment["metadata"], deployment["spec"]
    pod: Obj = spec["template"].get("spec") or {}
    name = place.name or about["name"]
    made = ImportedApp({})
    containers = pod.get("containers") or []
    container: Obj = containers[0] if containers else {}
    if len(containers) != 1:
        names = ", ".join(each["name"] for each in containers)
        made.obstacles.append(f"it has {len(containers)} containers ({names}): an App has one")
    _look_at_pod(pod, made)
    _look_at_container(container, made)
    service = _service_of(deployment, services, made)
    port, protocol = _port(container, service, made)
    app: Obj = {"image": container.get("image", "")}
    for field_name in ("command", "args"):
        if container.get(field_name):
            app[field_name] = list(container[field_name])
    if env := _variables(container, made):
        app["env"] = env
    if resources := _resources(container, made):
        app["resources"] = resources
    app["port"] = port
    if protocol != "http1":
        app["protocol"] = protocol
    if check := _healthcheck(container, port, made):
        app["healthcheck"] = check
    grace = pod.get("terminationGracePeriodSeconds", 30)
    if grace != 30:
        app["terminationSeconds"] = min(grace, 3600)
    if pod.get("nodeSelector"):
        app["nodeSelector"] = dict(pod["nodeSelector"])
    if tolerations := _tolerations(pod, made):
        app["placement"] = {"tolerations": tolerations}
    replicas = spec.get("replicas", 1)
    row: Obj = {"region": place.region, "replicas": replicas}
    if scaling := _autoscaling(about["name"], autoscalers, made):
        row = {"region": place.region, "autoscaling": scaling}
    if place.cluster:
        row["adopt"] = adoption(deployment, place.cluster, autoscalers)
        if pod_labels := labels_for(deployment, services, made):
            app["podLabels"] = pod_labels
    app["topology"] = [row]
    labels = {
        key: value for key, value in (about.get("labels") or {}).items() if not any(part in key for part in _NOT_OURS)
    }
    metadata: Obj = {"name": name, "project": place.project, "environment": place.environment}
    if labels:
        metadata["labels"] = labels
    made.document = {"apiVersion": API_VERSION, "kind": "App", "metadata": metadata, "spec": app}
    return made


def _look_at_pod(pod: Obj, made: ImportedApp) -> None:
    for name, what in _POD_FIELDS.items():
        if pod.get(name):
            made.obstacles.append(f"spec.{name}: {what} cannot be said")
    for name, what in _DONE_OTHERWISE.items():
        if pod.get(name):
            made.notes.append(f"spec.{name}: {what}")
    volumes = ", ".join(each.get("name", "") for each in pod.get("volumes") or ())
    if volumes:
        made.obstacles.append(f"spec.volumes ({volumes}): an App has no volumes")
    account = pod.get("serviceAccountName", "default")
    if account not in ("default", ""):
        made.obstacles.append(
            f"spec.serviceAccountName is {account!r}: an App has an account of its own, without rights"
        )
    _look_at_security(pod.get("securityContext"), "spec", made)


def _look_at_security(given: Obj | None, where: str, made: ImportedApp) -> None:
    own = {"seccompProfile", "allowPrivilegeEscalation", "capabilities"}
    other = sorted(
        name for name, value in (given or {}).items() if name not in own and value is not None and value is not False
    )
    if other:
        made.obstacles.append(f"{where}.securityContext ({', '.join(other)}) cannot be said")
    added = ((given or {}).get("capabilities") or {}).get("add")
    if added:
        made.obstacles.append(f"{where}.securityContext.capabilities.add ({', '.join(added)}) cannot be said")


def _look_at_container(container: Obj, made: ImportedApp) -> None:
    _look_at_security(container.get("securityContext"), "container", made)
    if container.get("lifecycle"):
        made.obstacles.append("container.lifecycle: hooks cannot be said")
    if container.get("workingDir"):
        made.obstacles.append("container.workingDir cannot be said")
    for source in container.get("envFrom") or ():
        kind = "secretRef" if "secretRef" in source else "configMapRef"
        name = (source.get(kind) or {}).get("name", "")
        made.obstacles.append(
            f"container.envFrom ({kind} {name}): create a secret with its values (`shoal create secret`)"
        )
    for name in ("livenessProbe", "startupProbe"):
        if container.get(name):
            made.notes.append(f"container.{name}: an App has one health check, made of readinessProbe")


def _variables(container: Obj, made: ImportedApp) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in container.get("env") or ():
        if "valueFrom" not in each:
            found[each["name"]] = each.get("value") or ""
            continue
        source, about = next(iter((each["valueFrom"] or {"?": {}}).items()))
        what = ""
        if isinstance(about, Mapping):
            what = "/".join(str(about[part]) for part in ("name", "key", "fieldPath", "resource") if about.get(part))
        made.obstacles.append(f"container.env {each['name']}: a value from {source} {what} is not imported".rstrip())
    return found


def _resources(container: Obj, made: ImportedApp) -> dict[str, str]:
    given = container.get("resources") or {}
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    names = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}
    found: dict[str, str] = {}
    for theirs, ours in names.items():
        amount = requests.get(theirs) or limits.get(theirs)
        if amount:
            found[ours] = str(amount)
        if theirs in limits and theirs in requests and limits[theirs] != requests[theirs]:
            made.notes.append(
                f"container.resources: {theirs} has the request {amount}; the limit {limits[theirs]} is left out"
            )
    for other in sorted({*requests, *limits} - names.keys()):
        made.obstacles.append(f"container.resources: {other} cannot be said")
    return found


def _service_of(deployment: Obj, services: Iterable[Obj], made: ImportedApp) -> Obj | None:
    found = selecting(deployment, services)
    if not found:
        made.notes.append("no Service selects its pods")
        return None
    if len(found) > 1:
        made.notes.append(f"several Services select its pods; {found[0]['metadata']['name']} is imported")
    kind = found[0]["spec"].get("type", "ClusterIP")
    if kind != "ClusterIP":
        made.notes.append(f"Service {found[0]['metadata']['name']} is a {kind}: let requests in with a Route")
    return found[0]


def _port(container: Obj, service: Obj | None, made: ImportedApp) -> tuple[int, str]:
    ports = container.get("ports") or []
    named = {each["name"]: each["containerPort"] for each in ports if each.get("name")}
    chosen = (service["spec"].get("ports") or []) if service is not None else []
    if len(chosen) > 1 or (not chosen and len(ports) > 1):
        made.obstacles.append(f"it has {max(len(chosen), len(ports))} ports: an App has one")
    if chosen:
        first = chosen[0]
        target = first.get("targetPort") or first.get("port")
        number = named.get(target) if isinstance(target, str) else target
        how = f"{first.get('appProtocol') or ''} {first.get('name') or ''}"
    elif ports:
        number, how = ports[0]["containerPort"], str(ports[0].get("name") or "")
    else:
        made.notes.append("it names no port: 8080 is assumed")
        number, how = 8080, ""
    if number is None:
        made.obstacles.append(f"the Service's targetPort {chosen[0].get('targetPort')!r} is no port of the container")
        number = 8080
    udp = [each for each in chosen[:1] or ports[:1] if each.get("protocol", "TCP") != "TCP"]
    if udp:
        made.obstacles.append(f"port {number} is {udp[0]['protocol']}: an App answers over TCP")
    return int(number), "h2c" if "h2c" in how or "grpc" in how else "http1"


def _healthcheck(container: Obj, port: int, made: ImportedApp) -> Obj | None:
    probe = container.get("readinessProbe")
    if not probe:
        return None
    kind = next((name for name in _PROBES if name in probe), "")
    about = probe.get(kind) or {}
    named = {each["name"]: each["containerPort"] for each in container.get("ports") or () if each.get("name")}
    number = named.get(about.get("port"), about.get("port"))
    check: Obj = {}
    if kind == "exec":
        check["exec"] = {"command": list(about.get("command") or ())}
    elif kind:
        ours = {"httpGet": "http", "tcpSocket": "tcp", "grpc": "grpc"}[kind]
        check[ours] = {"path": about.get("path") or "/"} if kind == "httpGet" else {}
        if isinstance(number, int) and number != port:
            check[ours]["port"] = number
    extra = [name for name in ("host", "httpHeaders", "service") if about.get(name)]
    if about.get("scheme", "HTTP") != "HTTP":
        extra.append("scheme")
    if not kind or isinstance(number, str) or extra:
        made.obstacles.append(f"container.readinessProbe ({', '.join(extra) or kind or 'empty'}) cannot be said")
    fields = {"initialDelaySeconds": "initialDelay", "periodSeconds": "period", "timeoutSeconds": "timeout",
              "failureThreshold": "failures"}  # fmt: skip
    check |= {ours: probe[theirs] for theirs, ours in fields.items() if probe.get(theirs)}
    if probe.get("successThreshold", 1) > 1:
        made.notes.append("container.readinessProbe.successThreshold is left out: one success is enough")
    return check if kind else None


def _tolerations(pod: Obj, made: ImportedApp) -> list[Obj]:
    found = []
    for each in pod.get("tolerations") or ():
        found.append({name: each[name] for name in ("key", "operator", "value", "effect") if each.get(name)})
        if each.get("tolerationSeconds") is not None:
            made.notes.append(f"spec.tolerations ({each.get('key', '')}): tolerationSeconds is left out")
    return found


def _autoscaling(name: str, autoscalers: Sequence[Obj], made: ImportedApp) -> Obj | None:
    targets = {id(each): each["spec"].get("scaleTargetRef") or {} for each in autoscalers}
    mine = [
        each
        for each in autoscalers
        if (targets[id(each)].get("kind"), targets[id(each)].get("name")) == ("Deployment", name)
    ]
    if not mine:
        return None
    spec = mine[0]["spec"]
    found: dict[str, Any] = {"min": spec.get("minReplicas", 1), "max": spec["maxReplicas"]}
    for metric in spec.get("metrics") or ():
        resource = metric.get("resource") or {}
        percent = (resource.get("target") or {}).get("averageUtilization")
        if metric.get("type") == "Resource" and resource.get("name") in ("cpu", "memory") and percent:
            found[resource["name"]] = percent
        else:
            made.obstacles.append(
                f"its HorizontalPodAutoscaler scales by {metric.get('type')}: an App scales by cpu and memory"
            )
    if spec.get("behavior"):
        made.notes.append("the behavior of its HorizontalPodAutoscaler is left out")
    return found
