"""What commands print as a table, a wide table and JSON, from recorded answers of a fleet."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.golden import GOLDEN, RecordedServer, Recording, compare, every_command

from shoal.app.findings import Finding, FindingVerdict, failed, ok, warning
from shoal.app.main import main
from shoal.base.clock import RealClock
from shoal.cli.adopting import ImportedApp
from shoal.cli.contexts import Context, current_context, navigator_context, save_context
from shoal.cli.fleet.import_app import check_adoption
from shoal.cli.importing import ImportPlace, app_of
from shoal.scheduler.explain import PodExplanation
from shoal.scheduler.model import TAINTED, NodeExplanation
from shoal.testing.images import ARCHITECTURE, BuiltImage, digest, entry, layer_of, saved

# By the name of the golden file. Each runs as it is, with -o wide and with -o json.
READ = {
    "get-apps": "get apps",
    "get-app": "get app hello",
    "get-clusters": "get clusters",
    "get-environments": "get environments",
    "get-projects": "get projects",
    "get-regions": "get regions",
    "get-routes": "get routes",
    "get-secrets": "get secrets",
    "get-sentinels": "get sentinels",
    "describe-app": "describe app hello",
    "describe-cluster": "describe cluster eu-1",
    "status": "status",
    "why-app": "why app hello",
    "why-environment": "why environment shop/prod",
    "explain-field": "explain app.spec.rollout.windows",
    "diff": "diff -f {changed}",
    "edit": "edit app hello --dry-run",
    "set-image": "set image hello shop/web:2 --dry-run",
    "set-env": "set env hello LEVEL=debug GREETING- --dry-run",
    "stop-app": "stop app hello --dry-run",
    "start-app": "start app hello --dry-run",
    "restart-app": "restart app hello --dry-run",
    "audit": "audit --limit 4",
    "whoami": "whoami",
    "events": "events --limit 8",
    "events-cluster": "events --cluster eu-1 --limit 5",
    "history": "history app hello",
    "scale-app": "scale app hello --replicas 3 --dry-run",
    "rollback-app": "rollback app web -p welcome --to 1 --dry-run",
    "move-app": "move app hello --region eu --cluster eu-1 --dry-run",
    "delete": "delete app hello --dry-run",
    "apply": "apply -f {examples}/hello.yaml --dry-run",
    "rollout-plan": "rollout plan -f {examples}/canary.yaml",
    "rollout-status": "rollout status api",
    "rollout-status-gateways": "rollout status environment/shop/prod",
    "rollout-history": "rollout history api",
    "rollout-pause": "rollout pause api",
    "rollout-resume": "rollout resume api",
    "rollout-skip": "rollout skip api",
    "rollout-promote": "rollout promote api",
    "rollout-abort": "rollout abort api",
    "rollout-retry": "rollout retry api",
    "rollout-undo": "rollout undo api",
    "query": "query \"pods where app = 'hello'\"",
    "services": "services",
    "service": "services default/kubernetes",
    "mesh-workload": "mesh workload web",
    "lint": "lint",
    "mesh-graph": "mesh graph",
    "mesh-proxy": "mesh proxy web",
    "search": "search hello",
    "changes-time": "changes --from 10m --kind services",
    "changes-clusters": "changes eu-1 us-1 --kind nodes",
    "checks-run": "checks run",
    "checks-list": "checks list",
    "agents-list": "agents list",
    "agents-upgrade": "agents upgrade --image registry.example/shoal:1.2.3 --dry-run",
    "token-list": "token list",
    "workspaces-list": "workspaces list",
    "workspaces-quotas": "workspaces quotas",
    "master-key-list": "master-key list",
    "master-key-rotate": "master-key rotate",
    "config-get-contexts": "config get-contexts",
    "config-view": "config view",
    "config-show": "config show sentinel",
    "navigator-edges-get": "navigator edges get",
    "navigator-edges-get-one": "navigator edges get eu-1",
}
# Commands that ask no server, each with a test of its own here.
LOCAL = ("doctor cluster", "doctor machine", "image list", "import", "navigator token list", "version", "why pod")
FORMATS = ("", " -o wide", " -o json")
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def universal_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", READ)
def test_a_command_prints_what_it_printed(
    name: str, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], private_state: None,
) -> None:  # fmt: skip
    folder = pytestconfig.getoption("--record-answers")
    path = GOLDEN / "answers" / f"{name}.json"
    recording = Recording(path) if folder else Recording.read(path)
    source = [None, None]
    if folder:
        home = Path(folder)
        source = [current_context(home, environ={}), navigator_context(home, environ={})]
    shown = ""
    with ExitStack() as stack:
        control, navigator = (
            stack.enter_context(RecordedServer(part, recording, known))
            for part, known in zip(("control", "navigator"), source, strict=True)
        )
        if READ[name].startswith("config "):  # asks no server, and shows these
            save_context(tmp_path, Context("local", "https://127.0.0.1:7400", "shoal_user_x", project="demo"))
        else:
            save_context(tmp_path, Context("local", control.url, "shoal_user_x", navigator=navigator.url))
        monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(RealClock, "now", lambda self: recording.at)
        monkeypatch.setattr(RealClock, "wall_s", lambda self: recording.at.timestamp())
        changed = tmp_path / "changed.yaml"
        changed.write_text((EXAMPLES / "hello.yaml").read_text().replace("replicas: 2", "replicas: 4"))
        monkeypatch.setenv("SHOAL_EDITOR", "sed -i 's/replicas: 2/replicas: 4/'")
        for output in FORMATS:
            code = main(shlex.split(READ[name].format(examples=EXAMPLES, changed=changed) + output))
            said = capsys.readouterr()
            ends = f"[exit code {code}]\n" if code else ""
            typed = f"$ shoal {READ[name].format(examples='examples', changed='changed.yaml')}{output}\n"
            shown += f"{typed}{said.out}{said.err}{ends}\n"
        shown = shown.replace(control.url, "http://CONTROL")
    if folder:
        recording.write()
    assert "NotRecorded" not in shown and "is not recorded" not in shown
    compare(GOLDEN / "outputs" / f"{name}.txt", shown, pytestconfig)


def transcript(line: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What a command prints in each format; ``more`` are words that are not shown."""
    shown = ""
    for output in FORMATS:
        capsys.readouterr()
        code = main([*shlex.split(line + output), *more])
        said = capsys.readouterr()
        ends = f"[exit code {code}]\n" if code else ""
        shown += f"$ shoal {line}{output}\n{said.out}{said.err}{ends}\n"
    return shown


def test_doctor_prints_what_it_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    found = [
        ok("python", "3.11.7"),
        warning("kubectl", "missing", "install it"),
        failed("keys", "others", "run: chmod"),
    ]
    monkeypatch.setattr("shoal.app.commands.doctor.examine", lambda state: found)
    compare(GOLDEN / "outputs" / "doctor-machine.txt", transcript("doctor", capsys), pytestconfig)


def test_doctor_of_a_cluster_prints_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    async def examined(*_: object) -> list[Finding]:
        return [
            Finding("version", FindingVerdict.OK, "1.32.0"),
            Finding(
                "rights",
                FindingVerdict.FAILED,
                "you may not create clusterroles",
                "use the kubeconfig of an administrator",
            ),
        ]

    monkeypatch.setattr("shoal.app.commands.doctor_cluster.examined", examined)
    write_kubeconfig(tmp_path, monkeypatch)
    compare(GOLDEN / "outputs" / "doctor-cluster.txt", transcript("doctor cluster", capsys), pytestconfig)


def test_import_prints_what_it_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    labels = {"app": "web"}
    container = {"name": "web", "image": "shop/web:1", "ports": [{"containerPort": 8080}]}
    helm = {"annotations": {"meta.helm.sh/release-name": "shop"}}
    running = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "0d5c1a4e", "generation": 3, **helm},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
        "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2},
    }
    service = {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}}

    async def read_app(*given: Any) -> ImportedApp:
        place: ImportPlace = given[-1]
        made = app_of(running, place, services=[service] if place.cluster else [], autoscalers=[])
        if place.cluster:
            check_adoption(running, place, made, [], [])
        return made

    monkeypatch.setattr("shoal.cli.fleet.import_app.read_app", read_app)
    line = "import deployment/web --region eu -p shop -e production"
    said = [transcript(each, capsys) for each in (line, f"{line} --adopt --cluster eu-1")]
    compare(GOLDEN / "outputs" / "import.txt", "".join(said), pytestconfig)


def write_kubeconfig(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leads nowhere."""
    clusters = "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]"
    (folder / "kubeconfig").write_text(
        f"current-context: x\ncontexts: [{{name: x, context: {{cluster: x}}}}]\n{clusters}"
    )
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))


def test_version_prints_what_it_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.11.7")
    monkeypatch.setattr("sqlite3.sqlite_version", "3.40.1")
    monkeypatch.setattr("shoal.app.commands.version.__version__", "0.1.0")
    compare(GOLDEN / "outputs" / "version.txt", transcript("version", capsys), pytestconfig)


def test_images_are_loaded_listed_and_pruned_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    image = BuiltImage((layer_of(entry("f", b"x" * 3000)),), {}, ARCHITECTURE)
    archive = saved(image, tmp_path / "image.tar", "shop/web:1", "web")
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    shown = ""
    monkeypatch.setattr(RealClock, "wall_s", lambda self: 1_800_000_000.0)
    for line in ("image load image.tar", "image list", "image prune --all", "image list", "image prune"):
        words = [str(archive) if each == "image.tar" else each for each in line.split()]
        if line == "image list":
            shown += transcript(line, capsys, "--dir", str(cluster))
        else:
            code = main([*words, "--dir", str(cluster)])
            shown += f"$ shoal {line}\n{capsys.readouterr().out}" + (f"[exit code {code}]\n" if code else "") + "\n"
    shown = re.sub(digest(image.settings)[7:19], "0" * 12, re.sub("sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", shown))
    compare(GOLDEN / "outputs" / "image-list.txt", shown, pytestconfig)


def test_why_pod_prints_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    nodes = (NodeExplanation("a", scores={"NodeResourcesFit": 90}), NodeExplanation("b", TAINTED))
    found = PodExplanation(
        namespace="default", name="web", node="a", phase="Running", message="", said="", nominated="", nodes=nodes
    )  # fmt: skip

    async def explain(*_: object, **__: object) -> PodExplanation:
        return found

    monkeypatch.setattr("shoal.scheduler.explain.explain", explain)
    write_kubeconfig(tmp_path, monkeypatch)
    compare(GOLDEN / "outputs" / "why-pod.txt", transcript("why pod web", capsys), pytestconfig)


def test_the_list_of_navigator_tokens_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(RealClock, "wall_s", lambda self: 1_800_000_000.0)
    folder = ("--dir", str(tmp_path))
    create = ["navigator", "token", "create", *folder]
    assert main([*create, "--cluster", "eu-1", "--region", "eu", "--url", "https://127.0.0.1:7410"]) == 0
    monkeypatch.setattr(RealClock, "wall_s", lambda self: 1_800_000_060.0)  # they are listed by age
    assert main([*create, "--kind", "viewer", "--scope", "namespace=shop", "--ttl", "7d"]) == 0
    shown = transcript("navigator token list", capsys, *folder)
    shown = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "00000000-0000-4000-8000-000000000000", shown)
    compare(GOLDEN / "outputs" / "navigator-token-list.txt", shown, pytestconfig)


def test_every_command_with_an_output_format_is_among_them() -> None:
    with_formats = {
        words
        for words, command in every_command()
        if any("--output" in getattr(parameter, "opts", ()) for parameter in command.params)
    }
    covered = {words for words in with_formats for line in READ.values() if f"{line} ".startswith(f"{words} ")}
    assert with_formats - covered == set(LOCAL)


def test_no_output_is_kept_of_a_command_that_is_gone() -> None:
    local = {words.replace(" ", "-") for words in LOCAL}
    assert {path.stem for path in (GOLDEN / "outputs").iterdir()} == READ.keys() | local
    assert {path.stem for path in (GOLDEN / "answers").iterdir()} <= READ.keys()
