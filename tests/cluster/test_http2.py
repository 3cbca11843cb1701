"""The API server over HTTP/2, with clients of other people: all that works over HTTP/1.1 works there."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.app.pki import Pki
from shoal.base.clock import RealClock
from shoal.testing.servers import PATCHES, ServerProcess, server_process

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process() as started:
        yield started


def client(server: ServerProcess, *, http2: bool = True, certificate: tuple[Path, Path] | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=server.ca_file)
    headers = {}
    if certificate is None:
        headers["Authorization"] = f"Bearer {server.token}"
    else:
        context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return httpx.Client(base_url=server.url, verify=context, headers=headers, http2=http2, timeout=20)


def a_configmap(name: str, size: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


def test_objects_are_written_read_and_watched_over_http2(server: ServerProcess) -> None:
    with client(server) as http:
        made = http.post(CONFIGMAPS, json=a_configmap("one"))
        assert (made.status_code, made.http_version) == (201, "HTTP/2")
        version = made.json()["metadata"]["resourceVersion"]
        watch = {"watch": "true", "resourceVersion": version}
        with http.stream("GET", CONFIGMAPS, params=watch) as events:
            lines = events.iter_lines()
            changed = http.patch(
                f"{CONFIGMAPS}/one", content='{"data":{"b":"2"}}', headers={"content-type": PATCHES["merge"]}
            )
            assert changed.json()["data"] == {"a": "x", "b": "2"}
            applied = http.patch(
                f"{CONFIGMAPS}/two?fieldManager=t",
                json={"apiVersion": "v1", "kind": "ConfigMap", **a_configmap("two")},
                headers={"content-type": PATCHES["apply"]},
            )
            assert applied.status_code == 201
            seen = [json.loads(next(lines)) for _ in range(2)]
            assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
                ("MODIFIED", "one"), ("ADDED", "two")
            ]  # fmt: skip
            assert http.delete(f"{CONFIGMAPS}/two").status_code == 200
            assert json.loads(next(lines))["type"] == "DELETED"
        refused = http.get(f"{CONFIGMAPS}/missing")
        assert (refused.status_code, refused.json()["reason"]) == (404, "NotFound")
        large = http.post(CONFIGMAPS, json=a_configmap("large", 1_000_000))  # longer than the windows
        assert len(large.json()["data"]["a"]) == 1_000_000


def test_lists_come_whole_and_in_chunks(server: ServerProcess) -> None:
    with client(server) as http:
        for index in range(40):
            assert http.post(CONFIGMAPS, json=a_configmap(f"list-{index:02d}", 20_000)).status_code == 201
        whole = http.get(CONFIGMAPS)
        assert len(whole.content) > 800_000
        assert "content-encoding" not in whole.headers  # httpx asks for gzip, as Go does, but is on this machine
        names, token = [], ""
        while True:
            page = http.get(CONFIGMAPS, params={"limit": 7, "continue": token}).json()
            names += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        assert names == [item["metadata"]["name"] for item in whole.json()["items"]]


def test_a_client_certificate_names_the_user(server: ServerProcess) -> None:
    pki = Pki(server.directory / "pki", now=RealClock().now())
    keys = pki.ensure_client("jane", "jane", ("system:masters",))
    with client(server, certificate=(keys.cert, keys.key)) as http:
        answer = http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={})
        assert answer.http_version == "HTTP/2"
        assert answer.json()["status"]["userInfo"]["username"] == "jane"


def test_requests_over_http2_are_counted_like_others(server: ServerProcess) -> None:
    def count(http: httpx.Client) -> int:
        text = http.get("/metrics").text
        found = re.findall(r'^apiserver_request_total\{[^}]*resource="secrets"[^}]*\} (\d+)', text, re.MULTILINE)
        return sum(map(int, found))

    with client(server) as http:
        before = count(http)
        http.get("/api/v1/secrets")
        assert count(http) == before + 1


def test_a_client_that_asks_for_http_1_1_gets_it_and_an_upgrade_over_http2_is_refused(server: ServerProcess) -> None:
    """Clients open a connection without HTTP/2 for exec, attach and port-forward."""
    with client(server, http2=False) as http:
        assert http.get("/version").http_version == "HTTP/1.1"
    with client(server) as http:
        path = "/api/v1/namespaces/default/pods/none/exec?command=ls"
        assert http.get(path).status_code in (400, 404)
        assert http.get("/version").http_version == "HTTP/2"


@pytest.mark.parametrize(("value", "version"), [("off", "HTTP/1.1"), ("on", "HTTP/2")])
def test_http2_can_be_turned_off(value: str, version: str) -> None:
    with server_process(None, "--port", "0", "--http2", value) as started, client(started) as http:
        assert http.get("/version").http_version == version


def test_kubectl_speaks_http2(server: ServerProcess) -> None:
    command = ["kubectl", "--kubeconfig", server.kubeconfig, "get", "namespaces"]
    environment = {**os.environ, "GODEBUG": "http2debug=1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "http2: Transport received HEADERS" in done.stderr
    assert "kube-system" in done.stdout


def test_a_stop_ends_watches_over_http2_as_complete() -> None:
    with server_process() as started, client(started) as http:
        with http.stream("GET", CONFIGMAPS, params={"watch": "true"}) as events:
            assert events.http_version == "HTTP/2"
            started.process.send_signal(signal.SIGTERM)
            assert all("object" in json.loads(line) for line in events.iter_lines())  # it ends, and is not cut off
        assert started.process.wait(timeout=10) == 0
