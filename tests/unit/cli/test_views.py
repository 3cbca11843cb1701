"""What is known of apps and agents as people read it; the words of kinds; lengths of time; shell completion."""

from __future__ import annotations

import io
import subprocess
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.app.main import COMMANDS, main
from shoal.cli.contexts import Context, Contexts, read_contexts, save_context, write_contexts
from shoal.cli.durations import seconds_of
from shoal.cli.fleet.agents import held_lines
from shoal.cli.fleet.apply import batches, report
from shoal.cli.fleet.documents import ManifestDocument, ordered, parse, placed
from shoal.cli.fleet.kinds import KINDS, kind_called
from shoal.cli.fleet.status import lines_of, picture
from shoal.cli.fleet.views import (
    agent_rows,
    app_rows,
    gateway_rows,
    instance_rows,
    is_ready,
    not_ready_lines,
    refused_of_gateways,
)
from shoal.cli.printers import Format, brief, document, duration, facts
from shoal.cli.rest import RequestRefused, Rest, in_lines
from shoal.cli.timestamps import age_of
from shoal.cli.watching import Display, ReconnectingStream
from shoal.control.domain import specs
from shoal.errors import ConfigError

NOW = datetime(2027, 1, 2, tzinfo=UTC)


def a_place(region: str, state: str = "Ready", *, ready: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "region": region, "cluster": f"{region}-1", "shard": "default", "state": state, "reason": "", "message": "",
        "desired": {"version": 7}, "applied": {"version": 7}, "reported": {"ready": ready, "needed": 1, "age": 3.21},
        **more,
    }  # fmt: skip


def a_shown_app(*regions: dict[str, Any], state: str = "Ready", **more: Any) -> dict[str, Any]:
    return {
        "name": "web", "project": "p", "environment": "e", "state": state, "summary": state, "regions": list(regions),
        **more,
    }  # fmt: skip


def an_agent(**more: Any) -> dict[str, Any]:
    controllers = {
        name: {"breaker": "closed", "objects": 2, "retrying": 0, "brake": {"held": False}}
        for name in ("deployments", "sentinels")
    }
    return {
        "cluster": "eu-1", "region": "eu", "shard": "default", "state": "Joined", "lastHeartbeat": 2.0, "lag": 0.5,
        "controllers": controllers, "held": [], **more,
    }  # fmt: skip


def test_an_app_has_a_row_in_each_place_and_its_older_revisions_follow() -> None:
    stuck = a_place("us", "Progressing", ready=0, applied={"version": 0}, reason="NotApplied", message="it waits")
    old = {"revision": 1, "status": "ready", "regions": [a_place("eu", shard="s2")]}
    rows = app_rows([a_shown_app(a_place("eu"), stuck, others=[old])])
    assert rows[0] == {
        "app": "p/e/web", "region": "eu", "cluster": "eu-1", "state": "Ready", "ready": "1/1", "desired": "v7",
        "applied": "v7", "reported": "3.2s", "reason": "",
    }  # fmt: skip
    assert (rows[1]["applied"], rows[1]["reason"]) == ("", "NotApplied: it waits")
    assert (rows[2]["state"], rows[2]["cluster"], rows[2]["reason"]) == ("Older", "eu-1/s2", "revision 1, ready")
    assert app_rows([a_shown_app(state="Empty")])[0]["state"] == "Empty"


def test_what_is_being_removed_has_a_row_without_counts() -> None:
    going = a_place("", "Removing", reported={"age": None}, message="delete for 3 s")
    assert app_rows([a_shown_app(going)])[0]["ready"] == ""


def test_lines_of_a_watch_hold_no_age_so_that_they_change_only_when_something_happens() -> None:
    def shown(age: float) -> dict[str, Any]:
        place = a_place("eu", reported={"ready": 1, "needed": 1, "age": age})
        return {"apps": [a_shown_app(place)], "agents": [an_agent(lastHeartbeat=age)]}

    assert lines_of(shown(1.0)) == lines_of(shown(50.0)) == ["p/e/web eu/eu-1: Ready, ready 1/1, applied v7 of v7"]
    assert picture(shown(1.0)) != picture(shown(50.0))
    lost = {"apps": [], "agents": [an_agent(state="Lost")]}
    assert lines_of(lost) == ["agent eu-1/default: Lost, breaker closed, brake free"]
    assert picture({"apps": [], "agents": []}) == "no apps\n\nno agent has joined\n"


def test_ready_is_only_what_is_ready_everywhere() -> None:
    assert is_ready(a_shown_app()) and is_ready(a_shown_app(state="Stopped"))
    degraded = a_shown_app(a_place("eu"), a_place("us", "AgentLost", message="no heartbeat"), state="Degraded")
    assert not is_ready(degraded)
    assert not_ready_lines([a_shown_app(), degraded]) == ["p/e/web: Degraded", "  us: AgentLost, no heartbeat"]


def test_an_agent_that_holds_deletions_back_says_how_many_and_what_releases_them() -> None:
    held = an_agent(held=["deployments"])
    held["controllers"]["deployments"] |= {
        "breaker": "open", "brake": {"held": True, "count": 9, "reason": "9 of 10", "keys": ["deployment/a"]},
    }  # fmt: skip
    (row,) = agent_rows([held])
    assert (row["breaker"], row["brake"], row["objects"], row["lag"]) == ("open", "holds 9 deletions", 4, "0.5s")
    text = "\n".join(held_lines([held, an_agent()]))
    assert "holds deletions of deployments back: 9 of 10" in text
    assert text.endswith("shoal agents confirm eu-1/default")
    assert agent_rows([an_agent(controllers={}, lastHeartbeat=None)])[0]["objects"] is None


def test_an_instance_says_why_it_does_not_run() -> None:
    crashed = {"name": "a", "reason": "CrashLoopBackOff", "exitCode": 3, "message": "back-off"}
    assert instance_rows([crashed])[0]["reason"] == "CrashLoopBackOff, exit code 3: back-off"
    assert instance_rows([{"name": "a", "message": "m"}])[0]["reason"] == "m"


def test_the_kinds_are_those_of_the_control_plane_in_its_order() -> None:
    assert [(each.name, each.plural, each.scope) for each in KINDS] == [
        (each.name, each.plural, each.scope) for each in specs.KINDS.values()
    ]
    assert kind_called("ENVS").name == kind_called("environment").name == "Environment"


def test_reports_of_a_dry_run_speak_of_what_would_be() -> None:
    result = {
        "object": {"kind": "Project", "metadata": {"name": "p"}}, "created": False, "effects": [], "dryRun": True,
        "changed": [{"path": "spec.x", "before": None, "after": "a\nb"}], "warnings": ["careful"],
    }  # fmt: skip
    assert report([result]) == "project p   would be changed\n  spec.x: (none) → 'a\\nb'\n  note: careful\n"
    key = {**result, "created": True, "dryRun": False, "warnings": []}
    key["object"] = {**result["object"], "status": {"key": "shk_1"}}
    assert report([key]) == "project p   created\n  key (shown only once): shk_1\n"


def test_documents_are_split_ordered_and_placed() -> None:
    found = parse(b"kind: App\nmetadata: {name: a}\n--- # next\nkind: Project\n---\n\n---\n- kind: Region\n", "f")
    assert [each.origin for each in found] == ["f, document 1", "f, document 2", "f, document 3"]
    assert [each.kind for each in ordered(found)] == ["Region", "Project", "App"]
    assert placed(found[0], "p", "e").metadata == {"name": "a", "project": "p", "environment": "e"}
    own = ManifestDocument({"kind": "App", "metadata": {"project": "own"}}, "f")
    assert placed(own, "p", "e").metadata == {"project": "own", "environment": "e"}
    assert placed(found[1], "p", "e") is found[1]


def test_a_request_takes_only_so_much() -> None:
    small = [ManifestDocument({"n": n}, "f") for n in range(1001)]
    assert [len(batch) for batch in batches(small)] == [500, 500, 1]
    large = [ManifestDocument({"text": "x" * 500_000}, "f") for _ in range(3)]
    assert [len(batch) for batch in batches(large)] == [1, 1, 1]
    assert list(batches([])) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.04, "0.0s"), (9.94, "9.9s"), (10, "10s"), (119, "119s"), (120, "2m"), (7200, "2h"), (1e6, "11d")],
)
def test_ages_have_one_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_moments_become_ages() -> None:
    assert age_of("2027-01-01T23:59:00Z", NOW) == "60s"
    assert age_of("2027-01-02T00:01:00Z", NOW) == "0.0s", "clocks differ"
    assert age_of("", NOW) == ""


def test_lengths_of_time_name_their_setting_when_they_are_wrong() -> None:
    assert seconds_of("ttl", "1h30m") == 5400
    for wrong in ("", "5", "0s", "99999999999d", "1s" * 5000):
        with pytest.raises(ConfigError, match="^grace is"):
            seconds_of("grace", wrong)


def test_values_are_printed_whole_or_short() -> None:
    assert document({"ä": [1]}, Format.JSON) == '{\n  "ä": [\n    1\n  ]\n}\n'
    assert yaml.safe_load(document({"ä": [1]}, Format.YAML)) == {"ä": [1]}
    assert brief({"a": "x" * 100}, 20) == '{"a": "xxxxxxxxxxxx…'
    assert facts([("a", 1), ("long", "b"), ("none", None)]) == "a:     1\nlong:  b\n"


def test_an_error_with_fields_has_a_line_for_each() -> None:
    details = [{"field": "spec.a", "message": "Required value"}]
    text = 'App.shoal.dev "x" is invalid: spec.a: Required value'
    assert in_lines(text, details) == 'App.shoal.dev "x" is invalid:\n  spec.a: Required value'
    assert in_lines("nobody is here", []) == "nobody is here"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_again_and_a_pipe_gets_what_is_new() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for out in (pipe, terminal):
        display = Display(out)
        for text in ("A\nb 1\n", "A\nb 1\n", "A\nb 2\n"):
            display.show(text)
    assert pipe.getvalue() == "A\nb 1\nb 2\n"
    assert terminal.getvalue().count("\x1b[2J") == 3


class Streaming(BaseHTTPRequestHandler):
    """Sends one message for each connection and ends, then an error; remembers what was asked."""

    asked: list[str | None] = []
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.asked.append(self.headers["Last-Event-ID"])
        number = len(self.asked)
        kind, data = ("event", f'{{"n": {number}}}') if number < 3 else ("error", '{"code": "X", "message": "over"}')
        body = f": open\n\nid: {number}\nevent: {kind}\ndata: {data}\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_stream_goes_on_after_the_last_message_until_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.watching._AGAIN_S", 0.01)
    monkeypatch.setattr(Streaming, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    rest = Rest(Context("x", f"http://127.0.0.1:{server.server_address[1]}", "t"))
    with ReconnectingStream(rest, "/stream") as stream:
        assert [stream.next(10.0), stream.next(10.0)] == [{"n": 1}, {"n": 2}]
        with pytest.raises(RequestRefused, match="over"):
            stream.next(10.0)
    server.shutdown()
    server.server_close()
    thread.join()
    assert Streaming.asked == [None, "1", "2"]


def test_contexts_are_chosen_changed_and_shown_without_their_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "new"))
    assert main(["config", "set-context", "a"]) == 2
    assert main(["config", "set-context", "a", "--url", "https://a/", "--token", "secret-a"]) == 0
    assert main(["config", "set-context", "b", "--url", "https://b", "--token", "secret-b"]) == 0
    assert main(["config", "set-context", "--project", "p", "--environment", "e"]) == 0
    assert main(["config", "use-context", "c"]) == 2
    assert main(["config", "use-context", "b"]) == 0
    capsys.readouterr()
    assert main(["config", "get-contexts"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["-", "a", "https://a", "p", "e"], ["*", "b", "https://b", "-", "-"]]
    assert main(["config", "view"]) == 0
    assert "secret" not in capsys.readouterr().out
    assert main(["config", "view", "--raw", "-o", "json"]) == 0
    assert "secret-a" in capsys.readouterr().out


def test_a_context_that_is_saved_again_keeps_its_defaults(tmp_path: Path) -> None:
    write_contexts(tmp_path, Contexts({"local": Context("local", "u", "t", "", "p", "e")}, "local"))
    save_context(tmp_path, Context("local", "u2", "t2"))
    assert read_contexts(tmp_path).known["local"] == Context("local", "u2", "t2", "", "p", "e")


def test_the_rights_of_an_agent_are_printed_as_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["krane", "manifests", "--namespace", "mine"]) == 0
    kinds = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(capsys.readouterr().out)]
    assert ("Namespace", "mine") in kinds and any(kind == "ClusterRole" for kind, _ in kinds)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shoal sta", {"status"}),
        ("shoal get en", {"environment"}),
        ("shoal token c", {"create"}),
        ("shoal apply --dry", {"--dry-run"}),
        ("shoal token create --ki", {"--kind"}),
        ("shoal get apps -o j", {"json"}),
    ],
)
def test_bash_completes_commands_kinds_and_options(line: str, expected: set[str], completion: Path) -> None:
    words = line.split(" ")
    script = (
        f"source {completion}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shoal; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
    assert expected <= set(shown.split())
    assert all(word.startswith(words[-1]) for word in shown.split())


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from shoal.app.commands.completion import bash_script, catalog_words, fish_script, zsh_script

    words = catalog_words()
    assert all(command.name in fish_script(words) for command in COMMANDS)
    assert zsh_script(words).startswith("#compdef shoal\n")
    path = tmp_path_factory.mktemp("completion") / "shoal.bash"
    path.write_text(bash_script(words))
    return path


def test_what_gateways_refuse_follows_apps_and_agents_with_the_reason() -> None:
    refused = {"kind": "route", "name": "p/e/front", "cluster": "eu-1", "gateway": "sentinel-x", "message": "Envoy: no"}
    shown = {"apps": [a_shown_app(a_place("eu"))], "agents": [an_agent()], "refused": [refused]}
    last = picture(shown).rstrip().splitlines()[-1]
    assert all(text in last for text in ("route p/e/front", "eu-1", "sentinel-x", "Envoy: no"))
    assert "REFUSED" not in picture({**shown, "refused": []})
    assert lines_of(shown)[-1] == "route p/e/front eu-1: Refused by sentinel-x, Envoy: no"


def test_replicas_of_a_gateway_show_what_they_counted_and_did_not_take() -> None:
    counted = {"codes": [0, 5, 0, 1, 2], "healthy": 1, "total": 2}
    entry = {
        "deployments": {"dep_1": counted, "dep_2": counted},
        "refused": [{"type": "Cluster", "name": "c", "reason": "no"}],
    }
    place = {"cluster": "eu-1", "reported": {"stats": {"gateways": {"sentinel-x": entry}}}}
    assert gateway_rows([place, {"cluster": "us-1", "reported": {}}]) == [
        {"gateway": "sentinel-x", "deployments": 2, "requests": 16, "errors": 4, "instances": "2/4", "refused": 1}
    ]
    assert refused_of_gateways([place]) == [
        {"refused": "Cluster c", "cluster": "eu-1", "gateway": "sentinel-x", "reason": "no"}
    ]
