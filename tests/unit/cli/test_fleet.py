"""The commands of the fleet, end to end, against a real control plane without agents."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from tests.unit.cli.conftest import Shoal, a_document, a_file, an_app

from shoal.cli.contexts import current_context, read_contexts
from shoal.cli.rest import Rest
from shoal.testing.proxy import AnswerLosingProxy
from shoal.testing.waiting import eventually


def test_a_file_in_any_order_is_applied_in_the_order_of_need(shoal: Shoal, tmp_path: Path) -> None:
    environment = a_document("Environment", "production", project="ordered")
    file = a_file(tmp_path, an_app("ordered"), environment, a_document("Project", "ordered"))
    dry = shoal("apply", "-f", file, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert "app ordered/production/web       would be created\n  eu/eu-1/default: apply deployment" in dry.out
    assert shoal("get", "project", "ordered").code == 1, "a dry run changes nothing"
    assert shoal("apply", "-f", file).rows() == [
        ["project", "ordered", "created"],
        ["environment", "ordered/production", "created"],
        ["app", "ordered/production/web", "created"],
    ]
    assert [row[-1] for row in shoal("apply", "-f", file).rows()] == ["unchanged"] * 3


def test_a_change_names_its_fields_and_a_dry_run_its_places(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    file = a_file(
        tmp_path, an_app(project, env={"A": "b"}, topology=[{"region": "eu", "replicas": 3}, {"region": "us"}])
    )
    dry = shoal("apply", "-f", file, "--dry-run").out
    assert "would be changed\n" in dry and "spec.env" in dry
    assert "eu/eu-1/default: apply deployment web-2-" in dry
    done = shoal("apply", "-f", file).out
    assert "  spec.topology[0].replicas: 2 → 3\n" in done
    assert "eu-1" not in done
    found = json.loads(shoal("apply", "-f", file, "-o", "json").out)
    assert [each["changed"] for each in found["items"]] == [[]]


@pytest.mark.parametrize("committed", [True, False])
async def test_an_apply_whose_answer_is_lost_finds_out_whether_it_was_applied(
    shoal: Shoal, project: str, tmp_path: Path, control_home: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    context = current_context(control_home, environ={})
    file = a_file(tmp_path, an_app(project, env={"LONG": "x" * 8000}), an_app(project, "other"))

    def is_there() -> bool:
        with closing(Rest(context)) as rest:
            return bool(rest.get(f"/api/v1/projects/{project}/environments/production/apps")["items"])

    async def until_there() -> None:
        await eventually(partial(asyncio.to_thread, is_there), timeout_s=30)

    port = urlsplit(context.url).port or 0
    async with AnswerLosingProxy(port, larger_than=6000, until=until_there if committed else None) as proxy:
        monkeypatch.setenv("SHOAL_URL", f"https://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("SHOAL_TOKEN", context.token)
        monkeypatch.setenv("SHOAL_CA", context.ca)
        ran = await asyncio.to_thread(shoal, "apply", "-f", file)
        assert is_there() == committed
        if committed:
            assert ran.code == 0 and [row[-1] for row in ran.rows()] == ["unchanged"] * 2
            assert "was lost before the answer" in ran.err and "is applied" in ran.err
        else:
            assert ran.code == 3 and "had not been applied when asked a moment later: apply again" in ran.err
            assert (await asyncio.to_thread(shoal, "apply", "-f", file)).code == 0


def test_a_file_of_several_requests_says_which_documents_were_applied_before_one_was_refused(
    shoal: Shoal, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.cli.fleet.apply.MOST_DOCUMENTS", 2)
    far = an_app(project, "c", topology=[{"region": "mars"}])
    ran = shoal("apply", "-f", a_file(tmp_path, an_app(project, "a"), an_app(project, "b"), far))
    assert ran.code == 1
    assert ran.rows() == [["app", f"{project}/production/{name}", "created"] for name in ("a", "b")]
    assert "error: the documents above were applied, the others not:" in ran.err and "App c" in ran.err


def test_folders_and_standard_input_are_files_too(
    shoal: Shoal, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_file(tmp_path, an_app(project, "a"), name="a.yaml")
    (tmp_path / "b.json").write_text(json.dumps({"items": [an_app(project, "b"), an_app(project, "c")]}))
    (tmp_path / "notes.txt").write_text("not a document")
    assert len(shoal("apply", "-f", str(tmp_path)).rows()) == 3

    class Stdin:
        buffer = (tmp_path / "a.yaml").open("rb")

    monkeypatch.setattr("sys.stdin", Stdin)
    assert shoal("apply", "-f", "-").rows() == [["app", f"{project}/production/a", "unchanged"]]
    Stdin.buffer.close()


def test_options_complete_the_project_and_environment_of_documents(
    shoal: Shoal, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_file(tmp_path, a_document("App", "web", an_app("")["spec"]))
    wrong = shoal("apply", "-f", file)
    assert wrong.code == 1
    assert "metadata.project: Required value" in wrong.err
    assert "with --project, $SHOAL_PROJECT or the context" in wrong.err
    assert shoal("apply", "-f", file, "-p", project, "-e", "production").code == 0
    monkeypatch.setenv("SHOAL_PROJECT", project)
    monkeypatch.setenv("SHOAL_ENVIRONMENT", "production")
    assert shoal("apply", "-f", file).rows() == [["app", f"{project}/production/web", "unchanged"]]


def test_a_wrong_document_stops_all_and_is_named_with_its_file(shoal: Shoal, project: str, tmp_path: Path) -> None:
    bad = an_app(project, "bad", imag="x")
    ran = shoal("apply", "-f", a_file(tmp_path, an_app(project, "good"), bad))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: nothing was applied:\n")
    assert "file.yaml, document 2 (App bad):\n" in ran.err
    assert "spec.imag: Forbidden: unknown field; did you mean image?" in ran.err
    assert shoal("get", "apps", "-p", project).out == f"no apps in {project}\n"


def test_a_refused_document_stops_all_and_is_reported_with_the_fix(shoal: Shoal, project: str, tmp_path: Path) -> None:
    lost = an_app("nowhere", "lost")
    far = an_app(project, "far", topology=[{"region": "mars"}])
    unsealed = an_app(project, "unsealed", secrets=["db"])
    file = a_file(tmp_path, an_app(project, "good"), lost, far, unsealed)
    for options in (("--dry-run",), ()):
        ran = shoal("apply", "-f", file, *options)
        assert (ran.code, ran.out) == (1, "") and ran.err.startswith("error: nothing was applied:\n")
    assert 'metadata.project: Not found: "nowhere"\n    → create it with `shoal create project nowhere`' in ran.err
    assert "→ use a region of the fleet (existing: ap, eu, us)" in ran.err
    assert f"→ create it with `shoal create secret db --project {project} --environment production …`" in ran.err
    assert "App good" not in ran.err and shoal("get", "apps", "-p", project).out == f"no apps in {project}\n"
    assert shoal("apply", "-f", a_file(tmp_path, lost)).code == 1, "also when every document is refused"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "line 2"),
        (b"a: 1\n---\nb: 1\nb: 2\n", 'line 4: key "b" already set'),
        (b"- 1", "not a mapping"),
        (b"---\n# nothing\n", "no documents found in"),
    ],
)
def test_a_file_that_cannot_be_read_is_wrong_use(shoal: Shoal, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "file.yaml").write_bytes(content)
    ran = shoal("apply", "-f", str(tmp_path / "file.yaml"))
    assert ran.code == 2
    assert "file.yaml" in ran.err and said in ran.err


def test_a_file_that_is_not_there_is_wrong_use(shoal: Shoal, tmp_path: Path) -> None:
    assert shoal("apply", "-f", str(tmp_path / "x.yaml")).code == 2
    assert shoal("apply").code == 2
    assert "has no files ending with" in shoal("apply", "-f", str(tmp_path)).err


def test_objects_are_shown_in_tables_and_can_be_applied_again(shoal: Shoal, project: str, tmp_path: Path) -> None:
    labelled = an_app(project, "b")
    labelled["metadata"]["labels"] = {"tier": "web"}
    shoal("apply", "-f", a_file(tmp_path, an_app(project, "a"), labelled))
    rows = shoal("get", "apps", "-p", project).rows()
    assert rows[0] == ["NAME", "PROJECT", "ENVIRONMENT", "STATUS", "REVISION", "IMAGE", "REGIONS", "AGE"]
    assert [row[0] for row in rows[1:]] == ["a", "b"]
    assert [row[0] for row in shoal("get", "apps", "-p", project, "-l", "tier=web").rows()[1:]] == ["b"]
    written = shoal("get", "app", f"{project}/production/a", "-o", "yaml").out
    assert yaml.safe_load(written)["kind"] == "App"
    (tmp_path / "all.json").write_text(shoal("get", "apps", "-p", project, "-o", "json").out)
    again = shoal("apply", "-f", str(tmp_path / "all.json"))
    assert [row[-1] for row in again.rows()] == ["unchanged", "unchanged"]


def test_a_name_that_only_one_object_has_is_enough(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("create", "environment", "staging", "-p", project)
    other = an_app(project, f"only-{project}")
    shoal("apply", "-f", a_file(tmp_path, other, an_app(project, f"twice-{project}")))
    other = an_app(project, f"twice-{project}")
    other["metadata"]["environment"] = "staging"
    shoal("apply", "-f", a_file(tmp_path, other))
    assert shoal("get", "app", f"only-{project}").code == 0
    ran = shoal("get", "app", f"twice-{project}")
    assert ran.code == 2
    assert f"is ambiguous: {project}/production/twice-{project}, {project}/staging/twice-{project}" in ran.err
    assert shoal("get", "app", f"staging/twice-{project}").code == 0
    assert shoal("get", "app", f"twice-{project}", "-e", "staging").rows()[1][2] == "staging"


def test_an_unknown_name_is_answered_with_existing_names(shoal: Shoal, project: str, tmp_path: Path) -> None:
    place = ("-p", project, "-e", "production")
    assert "app 'wob' not found in" in shoal("get", "app", "wob", *place).err
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    assert f"did you mean {project}/production/web?" in shoal("get", "app", "wep", *place).err
    assert f"existing: {project}/production/web" in shoal("describe", "app", "zzz", *place).err
    assert "did you mean app?" in shoal("get", "appp").err
    assert shoal("get", "things").code == 2
    assert "use `shoal agents`" in shoal("get", "agent").err
    assert "project 'nowhere' not found; existing: " in shoal("get", "apps", "-p", "nowhere", "-e", "x").err
    missing = shoal("get", "apps", "-p", project, "-e", "elsewhere").err
    assert f"environment 'elsewhere' not found in {project}; existing: {project}/production" in missing
    assert "use NAME or PROJECT/ENVIRONMENT/NAME" in shoal("get", "app", "a/b/c/d").err


def test_an_app_is_described_from_spec_to_events(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project, env={"GREETING": "hello"})))
    text = shoal("describe", "app", f"{project}/production/web").out
    for expected in (
        "Status:    Progressing: ready 0/2 regions", "env:        GREETING=hello", "region eu:  replicas 2",
        "NoAgent: no agent has joined for this cluster and shard", "eu → eu-1: ", "Instances: none", "revision 1: shoal/echo",
    ):  # fmt: skip
        assert expected in text, text
    found = json.loads(shoal("describe", "app", f"{project}/production/web", "-o", "json").out)
    assert set(found) == {"object", "status", "revisions", "instances", "events"}
    assert "Apps:\n  NAME" in shoal("describe", "environment", f"{project}/production").out
    assert "region: eu" in shoal("describe", "cluster", "eu-1").out


def test_status_shows_every_app_in_every_region(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project), an_app(project, "other")))
    ran = shoal("status", f"{project}/production/web")
    rows = ran.rows()
    assert rows[0] == ["APP", "REGION", "CLUSTER", "STATE", "READY", "DESIRED", "APPLIED", "REPORTED", "REASON"]
    assert [row[:5] for row in rows[1:3]] == [
        [f"{project}/production/web", "eu", "eu-1", "Progressing", "0/2"],
        [f"{project}/production/web", "us", "us-1", "Progressing", "0/1"],
    ]
    assert "no agent has joined" in ran.out
    assert len(json.loads(shoal("status", "-p", project, "-o", "json").out)["apps"]) == 2
    assert shoal("status", "-p", "none").out.startswith("no apps in none\n")


def test_waiting_for_an_app_that_is_not_ready_exits_with_one_and_the_reasons(
    shoal: Shoal, project: str, tmp_path: Path
) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    ran = shoal("status", f"{project}/production/web", "--wait-ready", "--timeout", "1s")
    assert ran.code == 1
    assert "error: not ready in time:" in ran.err
    assert "eu: Progressing, NoAgent: no agent has joined for this cluster and shard" in ran.err
    assert shoal("status", "--timeout", "soon").code == 2


def test_watching_prints_a_line_for_each_change(
    shoal: Shoal, project: str, tmp_path: Path, spawned: Callable[..., subprocess.Popen[str]]
) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    status = spawned("status", f"{project}/production/web", "-w")
    events = spawned("events", "app", f"{project}/production/web", "-f")
    objects = spawned("get", "apps", "-p", project, "-w")
    assert status.stdout and events.stdout and objects.stdout
    assert status.stdout.readline().startswith(f"{project}/production/web eu/eu-1: Progressing, ready 0/2")
    assert status.stdout.readline().startswith(f"{project}/production/web us/us-1: Progressing")
    assert "revision 1: shoal/echo in 2 regions" in events.stdout.readline()
    assert objects.stdout.readline().startswith("NAME")
    assert shoal("scale", "app", f"{project}/production/web", "--replicas", "5", "--region", "eu").code == 0
    assert "ready 0/5" in status.stdout.readline()
    shoal("apply", "-f", a_file(tmp_path, an_app(project, image="shoal/echo:2")))
    assert "revision 2: shoal/echo:2" in events.stdout.readline()


def test_history_has_revisions_and_changes(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    shoal("apply", "-f", a_file(tmp_path, an_app(project, image="shoal/echo:2")))
    text = shoal("history", "app", f"{project}/production/web").out
    revisions, changes = text.split("\n\n")
    assert [line.split()[0] for line in revisions.splitlines()[1:]] == ["2", "1"]
    assert "spec.image: shoal/echo → shoal/echo:2" in changes.splitlines()[1]
    assert "create" in shoal("history", "project", project).out


def test_an_app_goes_back_to_an_earlier_revision(shoal: Shoal, project: str, tmp_path: Path) -> None:
    name = f"{project}/production/web"
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    shoal("apply", "-f", a_file(tmp_path, an_app(project, image="shoal/echo:2")))
    none = shoal("rollback", "app", name)
    assert none.code == 1 and "no earlier revision of this app was ever ready" in none.err
    dry = shoal("rollback", "app", name, "--to", "1", "--dry-run").out
    assert "would be changed" in dry and "spec.image: shoal/echo:2 → shoal/echo" in dry
    assert "spec.image: shoal/echo:2 → shoal/echo" in shoal("rollback", name, "--to", "1").out
    assert "existing: 3, 2, 1" in shoal("rollback", "app", name, "--to", "9").err


def test_an_autoscaled_app_is_scaled_by_its_bounds(shoal: Shoal, project: str, tmp_path: Path) -> None:
    name = f"{project}/production/web"
    shoal("apply", "-f", a_file(tmp_path, an_app(project, autoscaling={"min": 1, "max": 4})))
    refused = shoal("scale", "app", name, "--replicas", "3")
    assert refused.code == 1 and "has no effect: autoscaled in eu between 1 and 4" in refused.err
    assert "autoscaling" in shoal("scale", "app", name, "--min", "2", "--max", "8").out
    assert "give --replicas, or --min and --max" in shoal("scale", "app", name).err


def test_the_wait_for_a_gateway_can_be_ended(shoal: Shoal, project: str, tmp_path: Path) -> None:
    gateway = a_document("Sentinel", "eu", {"region": "eu"}, project=project, environment="production")
    shoal("apply", "-f", a_file(tmp_path, gateway))
    done = shoal("sentinels", "forget", f"{project}/production/eu")
    assert (done.code, done.out) == (0, f"sentinel {project}/production/eu: nothing waits for it\n")
    assert "not found" in shoal("sentinels", "forget", f"{project}/production/none").err


def test_events_are_listed_for_all_and_for_one(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    assert f"app {project}/production/web" in shoal("events").out
    one = json.loads(shoal("events", "app", f"{project}/production/web", "-o", "json").out)
    assert [each["reason"] for each in one] == ["NewRevision"]
    assert shoal("events", "app").code == 2


def test_a_change_is_followed_by_its_id(
    shoal: Shoal, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    spawned: Callable[..., subprocess.Popen[str]],
) -> None:  # fmt: skip
    file = a_file(tmp_path, an_app(project))
    ran = shoal("apply", "-f", file, "--correlation-id", f"deploy-{project}")
    assert ran.err == f"correlation id: deploy-{project} (shoal events --correlation deploy-{project})\n"
    assert shoal("apply", "-f", file).err == "", "nothing changed"
    shown = shoal("events", "--correlation", f"deploy-{project}")
    assert [row[2] for row in shown.rows()[1:]][:3] == ["Accepted", "Committed", "NewRevision"]
    assert "Waiting" in shown.out and "eu-1" in shown.out and "not reported as applied yet" in shown.out
    steps = json.loads(shoal("events", "--correlation", f"deploy-{project}", "-o", "json").out)
    assert {step["correlation"] for step in steps} == {f"deploy-{project}"}
    following = spawned("events", "--correlation", f"deploy-{project}", "-f")
    assert following.stdout and "Accepted" in following.stdout.readline()

    monkeypatch.setenv("SHOAL_CORRELATION_ID", "from-the-pipeline")
    scaled = shoal("scale", "app", f"{project}/production/web", "--replicas", "7")
    assert "correlation id: from-the-pipeline" in scaled.err
    wrong = shoal("apply", "-f", a_file(tmp_path, an_app(project, imag="x")))
    assert wrong.err.endswith("correlation id: from-the-pipeline\n"), "errors show it too"
    monkeypatch.delenv("SHOAL_CORRELATION_ID")
    made = shoal("scale", "app", f"{project}/production/web", "--replicas", "8").err
    assert re.fullmatch(r"correlation id: ([0-9a-f-]{36}) \(shoal events --correlation \1\)\n", made)

    assert shoal("events", "--correlation", "never-was").out == "nothing known of never-was\n"
    assert "use up to 64 letters" in shoal("apply", "-f", file, "--correlation-id", "two words").err
    assert "cannot be combined" in shoal("events", "app", "web", "--correlation", "x").err


def test_why_an_app_is_where_it_is_is_explained(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    lines = shoal("explain", "app", f"{project}/production/web").out.splitlines()
    assert lines[0] == "web: Progressing: ready 0/2 regions"
    assert any(line.startswith("us → us-1/default: placed because") for line in lines)


def test_a_move_names_both_clusters_and_an_unknown_cluster_is_answered_with_existing_ones(
    shoal: Shoal, project: str, tmp_path: Path
) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project, topology=[{"region": "ap"}])))
    name = f"{project}/production/web"
    (here,) = json.loads(shoal("status", name, "-o", "json").out)["apps"][0]["regions"]
    there = "ap-2" if here["cluster"] == "ap-1" else "ap-1"
    ran = shoal("move", "app", name, "--region", "ap", "--cluster", there)
    assert f"app {name} moves to {there} in ap\n" in ran.out
    assert f"ap/{there}/default: apply deployment" in ran.out
    assert "is already there" in shoal("move", "app", name, "--region", "ap", "--cluster", there).out
    wrong = shoal("move", "app", name, "--region", "ap", "--cluster", "ap-9")
    assert wrong.code == 1
    assert "existing: ap-1, ap-2, eu-1, us-1" in wrong.err


def test_a_secret_is_made_from_literals_and_files_and_never_shown(shoal: Shoal, project: str, tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("line 1\nline 2\n")
    (tmp_path / "env").write_text("# comment\nUSER=me\n")
    place = ("-p", project, "-e", "production")
    flags = ("--from-literal", "PASSWORD=a=b", "--from-file", f"PEM={tmp_path / 'pem'}")
    more = ("--from-env-file", str(tmp_path / "env"))
    assert shoal("create", "secret", "db", *flags, *more, *place).rows() == [
        ["secret", f"{project}/production/db", "created"]
    ]
    text = shoal("get", "secret", "db", *place, "-o", "yaml").out
    assert yaml.safe_load(text)["spec"] == {"variables": ["PASSWORD", "PEM", "USER"]}
    assert "a=b" not in text and "line 1" not in text
    again = shoal("create", "secret", "db", *flags, *place)
    assert again.code == 1 and "--replace" in again.err
    assert shoal("create", "secret", "db", *flags, *place, "--replace").rows()[0][-1] == "changed"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "the secret has no values"),
        (["--from-literal", "hunter2"], "invalid --from-literal: expected NAME=…"),
        (["--from-literal", "A=1", "--from-literal", "A=2"], "variables given more than once: A"),
        (["--from-file", "A=/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_a_secret_without_usable_values_is_wrong_use(shoal: Shoal, project: str, flags: list[str], said: str) -> None:
    ran = shoal("create", "secret", "db", *flags, "-p", project, "-e", "production")
    assert ran.code == 2
    assert said in ran.err
    assert "hunter2" not in ran.err


def test_a_credential_is_made_from_files_and_never_shown(shoal: Shoal, project: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    place = ("-p", project, "-e", "production")
    flags = ("--token-file", str(tmp_path / "token"), "--from-file", f"X-Key={tmp_path / 'token'}")
    assert shoal("create", "credential", "hooks", *flags, *place).rows() == [
        ["credential", f"{project}/production/hooks", "created"]
    ]
    shown = shoal("get", "credential", "hooks", *place, "-o", "yaml").out
    assert yaml.safe_load(shown)["spec"] == {"headers": ["Authorization", "X-Key"]} and "hunter2" not in shown
    assert "hooks" in shoal("get", "credentials", *place).out
    again = shoal("create", "credential", "hooks", *flags, *place)
    assert again.code == 1 and "--replace" in again.err
    none = shoal("create", "credential", "other", *place)
    assert none.code == 2 and "use --token-file FILE or --from-file HEADER=FILE" in none.err
    twice = shoal("create", "credential", "other", *flags, "--from-file", f"x-key={tmp_path / 'token'}", *place)
    assert twice.code == 2 and "a header is given more than once" in twice.err


def test_creating_without_a_project_is_answered_with_existing_projects(shoal: Shoal, project: str) -> None:
    ran = shoal("create", "secret", "db", "--from-literal", "A=b")
    assert ran.code == 2
    assert "project is missing: set it with --project, $SHOAL_PROJECT or in the context (existing:" in ran.err


def test_deleting_lists_the_objects_that_are_deleted_with_it(shoal: Shoal, project: str, tmp_path: Path) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    refused = shoal("delete", "project", project)
    assert refused.code == 1 and "--cascade" in refused.err
    dry = shoal("delete", "project", project, "--cascade", "--dry-run").out
    assert f"project {project}   would be deleted\n" in dry
    assert f"  and app {project}/production/web\n" in dry
    assert "eu/eu-1/default: delete deployment" in dry
    assert shoal("get", "project", project).code == 0
    assert "   deleted\n" in shoal("delete", "project", project, "--cascade").out
    assert shoal("delete", "project", project).code == 1


def test_an_app_is_released_by_its_name_or_file_and_nothing_else_is(shoal: Shoal, project: str, tmp_path: Path) -> None:
    file, name = a_file(tmp_path, an_app(project)), f"{project}/production/web"
    shoal("apply", "-f", file)
    refused = shoal("delete", "project", project, "--keep-running")
    assert refused.code == 2 and f"--keep-running is for apps only, and there is project {project}" in refused.err
    dry = shoal("delete", "-f", file, "--keep-running", "--dry-run").out
    assert f"app {name}   would be released, and what runs goes on\n" in dry
    assert "eu/eu-1/default: release deployment" in dry
    assert f"app {name}   released, and what runs goes on\n" in shoal("delete", "-f", file, "--keep-running").out
    assert shoal("get", "app", name).code == 1


def test_a_file_is_deleted_in_the_reverse_order_and_once(shoal: Shoal, tmp_path: Path) -> None:
    documents = (
        a_document("Project", "gone"), a_document("Environment", "production", project="gone"), an_app("gone"),
    )  # fmt: skip
    file = a_file(tmp_path, *documents)
    shoal("apply", "-f", file)
    assert shoal("delete", "-f", file, "--dry-run").code == 0
    ran = shoal("delete", "-f", file)
    assert [row[0] for row in ran.rows()] == ["app", "environment", "project"]
    again = shoal("delete", "-f", file)
    assert again.code == 0
    assert again.out.count("not found") == 3
    assert shoal("delete").code == 2
    assert shoal("delete", "app").code == 2


def test_on_a_terminal_deleting_asks_first(
    shoal: Shoal, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shoal("apply", "-f", a_file(tmp_path, an_app(project)))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, **_: answers.append(text))
    assert shoal("delete", "app", f"{project}/production/web").code == 0
    assert answers == ["Delete it?"]
    assert shoal("get", "app", f"{project}/production/web").code == 1


def test_agents_can_be_shown_and_confirmed_only_where_there_are_some(shoal: Shoal) -> None:
    assert shoal("agents").out == "no agent has joined\n"
    assert "agent 'eu-1/default' not found (existing agents: none)" in shoal("agents", "confirm", "eu-1/default").err
    assert shoal("agents", "confirm", "a/b/c").code == 2


def test_a_join_file_is_printed_once_or_written_for_its_owner_only(shoal: Shoal, tmp_path: Path) -> None:
    flags = ("--kind", "agent", "--cluster", "eu-1", "--region", "eu")
    join = json.loads(shoal("token", "create", *flags, "--name", "printed").out)
    assert {"url", "ca", "token", "cluster", "region", "shard"} <= set(join)
    path = tmp_path / "join.json"
    ran = shoal("token", "create", *flags, "--name", "written", "--to", str(path))
    assert ran.out == f"the join file was written to {path}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    listed = shoal("token", "list", "--kind", "agent").out
    assert "printed" in listed and json.loads(path.read_text())["token"] not in listed
    assert "cluster is missing" in shoal("token", "create", "--kind", "agent").err


def test_a_users_token_works_until_it_is_revoked(
    shoal: Shoal, control_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shoal("token", "create", "--name", "bob", "--role", "viewer", "--ttl", "1h").out.strip()
    token = shoal("token", "rotate", "bob", "--grace", "0").out.strip()
    assert first and token and first != token
    context = read_contexts(control_home).known["local"]
    monkeypatch.setenv("SHOAL_URL", context.url)
    monkeypatch.setenv("SHOAL_CA", context.ca)
    monkeypatch.setenv("SHOAL_TOKEN", token)
    assert shoal("get", "regions").code == 0
    assert shoal("create", "project", "nope").code == 1, "a viewer changes nothing"
    for name in ("SHOAL_URL", "SHOAL_CA", "SHOAL_TOKEN"):
        monkeypatch.delenv(name)
    assert shoal("token", "revoke", "bob").out == "revoked bob\n"
    assert "token 'bob' not found (existing: admin" in shoal("token", "revoke", "bob").err
    assert "name is missing" in shoal("token", "create").err


def test_deleting_what_is_not_there_is_an_error_unless_told_otherwise(shoal: Shoal, project: str) -> None:
    name = f"{project}/production/none"
    assert shoal("delete", f"app/{name}", "--yes").code == 1
    ran = shoal("delete", f"app/{name}", "--yes", "--ignore-not-found")
    assert (ran.code, ran.out) == (0, f"app {name}   not found\n")
    assert shoal("delete", "app", "nowhere-at-all", "--yes", "--ignore-not-found").code == 0


def test_a_control_plane_that_is_away_is_one_line(shoal: Shoal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_URL", "https://127.0.0.1:1")
    monkeypatch.setenv("SHOAL_TOKEN", "x")
    ran = shoal("status")
    assert ran.code == 3
    assert ran.err.startswith("error: no response from https://127.0.0.1:1")
