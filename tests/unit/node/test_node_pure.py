"""Environment, volumes, admission, eviction, probes and the node object: the agent's pure parts."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube import quantity
from shoal.node.admission import refusal
from shoal.node.config import NodeConfig, Taint
from shoal.node.env import EnvironmentSources, environment, expand, linked_services, pod_field, service_links
from shoal.node.errors import ConfigFault, VolumeFault
from shoal.node.eviction import PodUse, Pressure, eviction_failure, victim
from shoal.node.node_object import MachineInfo, NodeConditions, allocatable, new_node, node_status, same_but_heartbeat
from shoal.node.pods.spec import hosts_file, sandbox_spec, security_of
from shoal.node.probes.model import ProbeKind, ProbeSeries, port_of, probe_of
from shoal.node.resources import total_requests
from shoal.node.runtime.model import ContainerSpec, Image, RuntimeInfo, argv_of
from shoal.node.volumes import files
from shoal.node.volumes.content import File, TokenProjection, VolumeSources, files_of

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"b": "2", "a": 'x"y'},
        "annotations": {"k": "v"},
    },
    "spec": {"nodeName": "node", "serviceAccountName": "sa", "containers": [{"name": "c"}]},
}


# environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"), ("$(A)", "1"), ("x$(A)y$(B)", "x1y$(B)"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"),
        ("$(A", "$(A"), ("$", "$"), ("$x", "$x"), ("a$$", "a$"), ("$(A)$(A)", "11"), ("", ""), ("$()", "$()"),
    ],
)  # fmt: skip
def test_references_to_variables(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}.get) == expected


@given(st.text("$()AB ", max_size=30))
@settings(max_examples=300)
def test_text_without_known_names_only_loses_doubled_dollars(text: str) -> None:
    assert expand(text, lambda _: None).replace("$", "") == text.replace("$", "")


def test_later_variables_win_and_see_earlier_ones() -> None:
    container = {
        "name": "c",
        "envFrom": [{"configMapRef": {"name": "m"}}, {"prefix": "S_", "secretRef": {"name": "s"}}],
        "env": [{"name": "A", "value": "own"}, {"name": "B", "value": "$(A)-$(S_K)"}, {"name": "EMPTY"}],
    }
    secret = {"data": {"K": base64.b64encode(b"hidden").decode()}}
    sources = EnvironmentSources(config_maps={"m": {"data": {"A": "map", "Z": "z"}}}, secrets={"s": secret})
    found = dict(environment(POD, container, sources))
    assert found == {"A": "own", "Z": "z", "S_K": "hidden", "B": "own-hidden", "EMPTY": ""}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"configMapKeyRef": {"name": "m", "key": "k"}}, 'configmap "m" not found'),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, 'secret "s" not found'),
        ({"configMapKeyRef": {"name": "there", "key": "k"}}, "couldn't find key k in ConfigMap n/there"),
        ({"fieldRef": {"fieldPath": "spec.other"}}, "unsupported fieldPath: spec.other"),
        ({"resourceFieldRef": {"containerName": "x", "resource": "limits.cpu"}}, "container x not found"),
    ],
)
def test_what_is_missing_is_named(variable: dict[str, Any], message: str) -> None:
    container = {"name": "c", "env": [{"name": "V", "valueFrom": variable}]}
    with pytest.raises(ConfigFault) as caught:
        environment(POD, container, EnvironmentSources(config_maps={"there": {"data": {}}}))
    assert str(caught.value) == message


def test_what_is_optional_may_be_missing() -> None:
    source = {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}
    container = {
        "name": "c", "env": [{"name": "V", "valueFrom": source}],
        "envFrom": [{"secretRef": {"name": "s", "optional": True}}],
    }  # fmt: skip
    assert environment(POD, container, EnvironmentSources()) == ()


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"), ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "64"), ({"resource": "requests.memory"}, "67108864"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"), ({"resource": "requests.cpu"}, "0"),
    ],
)  # fmt: skip
def test_resources_of_a_container(reference: dict[str, Any], expected: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}
    container = {
        "name": "c",
        "resources": resources,
        "env": [{"name": "V", "valueFrom": {"resourceFieldRef": reference}}],
    }
    sources = EnvironmentSources(allocatable={"memory": quantity.parse("8Gi")})
    assert dict(environment(POD, container, sources))["V"] == expected


def test_fields_of_a_pod() -> None:
    sources = EnvironmentSources(pod_addresses=("10.0.0.1", "fd00::1"), host_addresses=("192.0.2.1",))
    assert pod_field(POD, "metadata.labels['b']", sources) == "2"
    assert pod_field(POD, "metadata.labels", sources) == 'a="x\\"y"\nb="2"'
    assert pod_field(POD, "status.podIPs", sources) == "10.0.0.1,fd00::1"
    assert pod_field(POD, "spec.serviceAccountName", sources) == "sa"


def test_links_of_services() -> None:
    ports = [{"name": "web", "port": 80}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}]
    service = {"metadata": {"name": "my-app", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.7", "ports": ports}}
    headless = {"metadata": {"name": "h", "namespace": "n"}, "spec": {"clusterIP": "None", "ports": ports}}
    api = {
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": ports},
    }
    other = {"metadata": {"name": "x", "namespace": "other"}, "spec": {"clusterIP": "10.96.0.9", "ports": ports}}
    every = (service, headless, api, other)
    assert linked_services(every, "n", all_links=True) == (api, service)
    assert linked_services(every, "n", all_links=False) == (api,)
    found = service_links([service])
    assert found["MY_APP_SERVICE_HOST"] == "10.96.0.7"
    assert (found["MY_APP_SERVICE_PORT"], found["MY_APP_SERVICE_PORT_DNS_UDP"]) == ("80", "53")
    assert found["MY_APP_PORT"] == found["MY_APP_PORT_80_TCP"] == "tcp://10.96.0.7:80"
    assert found["MY_APP_PORT_53_UDP_PROTO"] == "udp"


def test_links_lead_to_where_a_port_had_to_move() -> None:
    moved = {"shoal.dev/served-ports": "80:8080,x:1,443:"}
    ports = [{"name": "web", "port": 80}, {"name": "tls", "port": 443}]
    about = {"name": "my-app", "namespace": "n", "annotations": moved}
    found = service_links([{"metadata": about, "spec": {"clusterIP": "127.5.128.7", "ports": ports}}])
    assert (found["MY_APP_SERVICE_PORT"], found["MY_APP_SERVICE_PORT_WEB"]) == ("8080", "8080")
    assert found["MY_APP_PORT"] == found["MY_APP_PORT_80_TCP"] == "tcp://127.5.128.7:8080"
    assert found["MY_APP_PORT_80_TCP_PORT"] == "8080"
    assert found["MY_APP_SERVICE_PORT_TLS"] == found["MY_APP_PORT_443_TCP_PORT"] == "443"


# volumes


def content(volume: dict[str, Any], **sources: Any) -> dict[str, File]:
    tokens = sources.pop("tokens", {})
    return files_of(
        {"name": "v", **volume}, POD, VolumeSources(environment=EnvironmentSources(**sources), tokens=tokens)
    )


def test_volumes_are_made_of_objects() -> None:
    maps = {"m": {"data": {"a": "1", "b": "2"}, "binaryData": {"c": base64.b64encode(b"\xff").decode()}}}
    assert content({"configMap": {"name": "m"}}, config_maps=maps) == {
        "a": File(b"1"),
        "b": File(b"2"),
        "c": File(b"\xff"),
    }
    items = [{"key": "a", "path": "deep/file", "mode": 0o400}]
    chosen = {"configMap": {"name": "m", "items": items, "defaultMode": 0o600}}
    assert content(chosen, config_maps=maps) == {"deep/file": File(b"1", 0o400)}
    downward = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    assert content(downward) == {"name": File(b"p")}


def test_projections_put_sources_together() -> None:
    wish = TokenProjection("", 3607, "token")
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    found = content(
        {"projected": {"sources": sources}}, config_maps={"ca": {"data": {"ca.crt": "PEM"}}}, tokens={wish: "t.o.k"}
    )
    assert {path: file.data for path, file in found.items()} == {"token": b"t.o.k", "ca.crt": b"PEM", "namespace": b"n"}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "x"}}, 'configmap "x" not found'),
        ({"secret": {"secretName": "x"}}, 'secret "x" not found'),
        (
            {"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent configmap key: z",
        ),
        ({"configMap": {"name": "m", "items": [{"key": "a", "path": "../out"}]}}, "invalid path '../out'"),
    ],
)
def test_what_a_volume_lacks_is_named(volume: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumeFault) as caught:
        content(volume, config_maps={"m": {"data": {"a": "1"}}})
    assert str(caught.value) == message


contents = st.dictionaries(
    st.sampled_from(["a", "b", "deep/c", "deep/er/d"]),
    st.builds(File, st.binary(max_size=20), st.sampled_from([0o644, 0o600])),
)


@given(st.lists(contents, min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_folder_holds_exactly_what_was_written_last(tmp_path_factory: pytest.TempPathFactory, versions: Any) -> None:
    folder = tmp_path_factory.mktemp("volume")
    last = None
    for version in versions:
        assert files.write(folder, version, "stamp") is (version != last)
        last = version
        found = {
            str(path.relative_to(folder)): path.read_bytes()
            for top in folder.iterdir()
            if not top.name.startswith("..")
            for path in ([top] if top.is_file() else sorted(top.rglob("*")))
            if path.is_file()
        }
        assert found == {path: file.data for path, file in version.items()}
    assert len([each for each in folder.iterdir() if each.name.startswith("..stamp")]) == 1


def test_a_change_is_one_step_for_readers(tmp_path: Path) -> None:
    files.write(tmp_path, {"a": File(b"1"), "b": File(b"1")}, "one")
    before = os.readlink(tmp_path / "..data")
    reader = os.open(tmp_path / "..data", os.O_RDONLY)
    try:
        files.write(tmp_path, {"a": File(b"2"), "b": File(b"2")}, "two")
        assert os.readlink(tmp_path / "..data") != before
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"2"
    finally:
        os.close(reader)


# resources, admission, eviction


def requests(name: str, **amounts: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": amounts}}


def test_a_pod_needs_its_busiest_moment() -> None:
    inits = [requests("i", cpu="3"), requests("s", cpu="1") | {"restartPolicy": "Always"}, requests("j", cpu="1")]
    pod = {"spec": {"initContainers": inits, "containers": [requests("a", cpu="500m"), requests("b", memory="1Gi")]}}
    assert total_requests(pod) == {"cpu": 3000, "memory": 1 << 30}
    pod["spec"]["containers"].append(requests("c", cpu="2"))
    pod["spec"]["overhead"] = {"cpu": "100m"}
    assert total_requests(pod)["cpu"] == 3600


def a_node(**labels: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "3"}
    return {"metadata": {"name": "node", "labels": labels}, "status": {"allocatable": room}}


def needing(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [requests("c", cpu="2")], **more}}


def test_pods_are_taken_while_there_is_room() -> None:
    assert refusal(needing(), a_node(), [needing()]) is None
    found = refusal(needing(), a_node(), [needing(), needing()])
    assert found is not None and found.rejected
    assert (found.reason, found.message) == (
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 4000, capacity: 4000",
    )
    small = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    full = refusal(small, a_node(), [small] * 3)
    assert full is not None and full.reason == "OutOfpods"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd"]}, True),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, False),
        ({"key": "gpu", "operator": "DoesNotExist"}, True), ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, True), ({"key": "size", "operator": "Lt", "values": ["3"]}, False),
    ],
)  # fmt: skip
def test_a_pod_must_want_this_node(expression: dict[str, Any], fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = refusal(needing(affinity=affinity), a_node(disk="ssd", size="5"), [])
    assert (found is None) is fits
    assert fits or (found is not None and found.reason == "NodeAffinity")


def test_ports_of_the_node_belong_to_one_pod() -> None:
    def with_port(address: str = "") -> dict[str, Any]:
        port = {"containerPort": 80, "hostPort": 8080, **({"hostIP": address} if address else {})}
        return {"metadata": {}, "spec": {"containers": [{"name": "c", "ports": [port]}]}}

    found = refusal(with_port(), a_node(), [with_port("10.0.0.1")])
    assert found is not None and found.reason == "NodePorts"
    assert refusal(with_port("10.0.0.2"), a_node(), [with_port("10.0.0.1")]) is None


def test_the_greediest_of_the_least_important_goes_first() -> None:
    def use(name: str, used: int, request: str = "0", priority: int = 0) -> PodUse:
        pod = {
            "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [requests("c", memory=request)]},
        }
        return PodUse(pod, {"memory": used}, {"c": {"memory": used}})

    pressure = Pressure("memory", 100 << 20, 10 << 20)
    within, over, important = use("within", 500, "1Gi"), use("over", 900), use("important", 5000, priority=10)
    critical = use("critical", 1 << 40, priority=2_000_001_000)
    assert victim(pressure, [within, important, over, critical]) is over
    assert victim(pressure, [within, important]) is important
    assert victim(pressure, [critical]) is None
    text = eviction_failure(pressure, use("over", 20 << 20)).message
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. "
        "Container c was using 20Mi, request is 0, has larger consumption of memory. "
    )


# probes


def test_thresholds_decide_when_answers_count() -> None:
    probe = probe_of({"livenessProbe": {"failureThreshold": 3, "successThreshold": 2}}, ProbeKind.LIVENESS)
    assert probe is not None
    verdicts, series = [], ProbeSeries()
    for success in (True, True, False, False, True, False, False, False, True, True):
        series = series.after(probe, success)
        verdicts.append(series.verdict)
    assert verdicts == [None, True, True, True, True, True, True, False, False, True]


def test_ports_by_number_and_by_name() -> None:
    container = {"ports": [{"name": "web", "containerPort": 8080}]}
    assert (port_of(80, container), port_of("web", container), port_of("90", container)) == (80, 8080, 90)
    with pytest.raises(ValueError, match="other"):
        port_of("other", container)


# what the runtime is asked for


def test_a_command_replaces_what_the_image_runs() -> None:
    image = Image(id="i", names=(), entrypoint=("entry",), command=("default",))

    def argv(command: tuple[str, ...] = (), args: tuple[str, ...] = ()) -> tuple[str, ...]:
        return argv_of(ContainerSpec(name="c", attempt=0, image=image, image_reference="i", command=command, args=args))

    assert argv() == ("entry", "default")
    assert argv(args=("own",)) == ("entry", "own")
    assert argv(command=("cmd",)) == ("cmd",)
    assert argv(command=("cmd",), args=("own",)) == ("cmd", "own")


def test_names_of_a_cluster_are_searched_for() -> None:
    found = sandbox_spec(POD, 0, "/x", dns_servers=("10.96.0.10",), domain="cluster.local")
    assert found.dns_searches == ("n.svc.cluster.local", "svc.cluster.local", "cluster.local")
    assert found.dns_options == ("ndots:5",)


def test_running_as_root_can_be_forbidden() -> None:
    pod = {**POD, "spec": {**POD["spec"], "securityContext": {"runAsNonRoot": True, "runAsUser": 7}}}
    assert security_of(pod, {"name": "c"}, Image(id="i", names=())).user == 7
    with pytest.raises(ConfigFault, match="breaks non-root policy"):
        security_of(pod, {"name": "c", "securityContext": {"runAsUser": 0}}, Image(id="i", names=()))


def test_the_hosts_file_knows_the_pod_and_its_aliases() -> None:
    aliases = [{"ip": "1.2.3.4", "hostnames": ["foo", "bar"]}]
    pod = {**POD, "spec": {**POD["spec"], "hostAliases": aliases, "subdomain": "sub"}}
    lines = hosts_file(pod, ("10.0.0.1",)).splitlines()
    assert "10.0.0.1\tp.sub.n.svc.cluster.local\tp" in lines
    assert "1.2.3.4\tfoo\tbar" in lines


# the node


def test_a_node_says_what_it_has_and_keeps_what_others_say() -> None:
    config = NodeConfig(name="node", root=Path("/x"), reserved_cpu="500m", taints=(Taint("a"),), labels=(("x", "y"),))
    info = RuntimeInfo(name="r", version="1", cpu_milli=4000, memory_bytes=8 << 30)
    assert allocatable(config, info)["cpu"] == "3500m"
    network = {"type": "NetworkUnavailable", "status": "False"}
    machine = MachineInfo(machine_id="m", boot_id="b")

    def status(old: dict[str, Any], now: float, **condition: Any) -> dict[str, Any]:
        return node_status(old, config, info, machine, NodeConditions(**condition), (), version="v1.0.0", now=now)

    first = status({"conditions": [network]}, 1000.0)
    assert network in first["conditions"]
    second = status(first, 2000.0)
    assert second != first and same_but_heartbeat(first, second)
    third = status(second, 3000.0, runtime_fault="gone", pressures=frozenset({"DiskPressure"}))
    values = {each["type"]: each["status"] for each in third["conditions"]}
    assert (values["Ready"], values["DiskPressure"], values["MemoryPressure"]) == ("False", "True", "False")
    made = new_node(config, info, first)
    assert made["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]
    assert made["metadata"]["labels"]["x"] == "y"
