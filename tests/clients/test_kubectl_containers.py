"""kubectl with containers that really run: logs, exec, attach, cp, port-forward, top; and the Python clients' streams."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import kubernetes
import pytest
from kubernetes.stream import stream
from lightkube import Client, KubeConfig
from tests.clients.conftest import Kubectl
from tests.clients.workloads import WITHIN, read

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking

COUNTING = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.05; done"


@pytest.fixture(scope="session")
def cluster(process_cluster: ServerProcess) -> ServerProcess:
    return process_cluster


def run(kubectl: Kubectl, name: str, script: str, *flags: str) -> None:
    """A pod that runs a shell script, ready."""
    kubectl("run", name, "--image=busybox", *flags, "--", "sh", "-c", script)
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", WITHIN)


def run_web(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=nginx", "--port=8080")
    kubectl("wait", "--for=condition=Ready", "pod/web", WITHIN)
    eventually_blocking(lambda: kubectl("logs", "web"), until=lambda text: "listening" in text)


# logs


def test_logs_are_read_from_either_end(kubectl: Kubectl) -> None:
    run(kubectl, "p", "for i in 1 2 3; do echo line $i; done; echo oops >&2; sleep 600")
    text = eventually_blocking(lambda: kubectl("logs", "p"), until=lambda text: "oops" in text)
    assert text.splitlines()[:3] == ["line 1", "line 2", "line 3"]
    assert len(kubectl("logs", "p", "--tail=2").splitlines()) == 2
    assert kubectl("logs", "p", "--limit-bytes=6") == "line 1"
    stamped = kubectl("logs", "p", "--timestamps").splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z line 1", stamped)
    assert kubectl("logs", "p", "--since=1h") == text
    assert kubectl("logs", "-l", "run=p", "--prefix").startswith("[pod/p/p] ")


def test_logs_are_followed_until_the_container_ends(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=busybox", "--restart=Never", "--",
            "sh", "-c", "echo begun; until test -e stop; do sleep 0.05; done; echo over")  # fmt: skip
    kubectl("wait", "--for=condition=Ready", "pod/p", WITHIN)
    with kubectl.started("logs", "-f", "p") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "begun\n"
        kubectl("exec", "p", "--", "touch", "stop")
        assert following.stdout.readline() == "over\n"
        assert following.wait(timeout=20) == 0
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/p", WITHIN)


def test_logs_of_the_run_before_a_crash(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=busybox", "--", "sh", "-c", "echo dying; exit 3")
    eventually_blocking(
        lambda: kubectl("get", "pod", "p", "--no-headers"), until=lambda text: "CrashLoopBackOff" in text
    )
    assert kubectl("logs", "p", "--previous") == "dying\n"
    text = eventually_blocking(
        lambda: kubectl("describe", "pod", "p"), until=lambda text: "Back-off restarting" in text
    )
    assert "Exit Code:    3" in text and "Started" in text.partition("Events")[2]


def test_the_error_for_an_unknown_image_names_the_fix(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=example.com/nonesuch:1")
    text = eventually_blocking(
        lambda: kubectl("describe", "pod", "p"),
        until=lambda text: "Failed to pull image" in text and "ErrImagePull" in text,
    )
    assert "image table" in text
    assert "trying and failing to pull image" in kubectl.fails("logs", "p")


# exec, attach and cp


def test_exec_passes_input_output_and_exit_codes(kubectl: Kubectl) -> None:
    run(kubectl, "p", "sleep 600", "--env=COLOUR=blue")
    assert kubectl("exec", "p", "--", "sh", "-c", "echo $COLOUR") == "blue\n"
    assert kubectl("exec", "-i", "p", "--", "tr", "a-z", "A-Z", stdin="hello") == "HELLO"
    done = kubectl.run("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7 and done.stdout == "out\n" and "err\n" in done.stderr
    assert "container other is not valid for pod p" in kubectl.fails("exec", "p", "-c", "other", "--", "true")
    large = "x" * 300_000
    assert kubectl("exec", "-i", "p", "--", "cat", stdin=large) == large


def test_exec_gives_a_terminal(kubectl: Kubectl) -> None:
    run(kubectl, "p", "sleep 600")
    said = in_terminal(
        kubectl, "exec", "-it", "p", "--", "sh", typed="test -t 0 && echo it-is-a-$((1+1))-way-tty; exit 4\n"
    )
    assert said[0] == 4 and "it-is-a-2-way-tty" in said[1]


def in_terminal(kubectl: Kubectl, *args: str, typed: str) -> tuple[int, str]:
    """kubectl as it runs in a terminal: its exit code and what was shown."""
    ours, theirs = pty.openpty()
    command = [kubectl.path, "--kubeconfig", kubectl.kubeconfig, "-n", kubectl.namespace, *args]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # the other side is closed
            pass
        finally:
            os.close(ours)
        return process.wait(timeout=20), shown.decode()


def test_attach_shows_the_containers_output(kubectl: Kubectl) -> None:
    run(kubectl, "p", COUNTING)
    with kubectl.started("attach", "p") as attached:
        assert attached.stdout is not None
        assert re.fullmatch(r"line \d+\n", attached.stdout.readline())


def test_files_are_copied_both_ways(kubectl: Kubectl, tmp_path: Path) -> None:
    run(kubectl, "p", "sleep 600")
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder / "b.bin").write_bytes(bytes(range(256)) * 400)
    kubectl("cp", str(folder), "p:copied")
    assert kubectl("exec", "p", "--", "cat", "copied/a.txt") == "hello"
    back = tmp_path / "back"
    kubectl("cp", "p:copied", str(back))
    assert (back / "b.bin").read_bytes() == (folder / "b.bin").read_bytes()


# the network


@pytest.mark.parametrize("target", ["pod/web", "svc/web"])
def test_port_forward_carries_http(kubectl: Kubectl, target: str) -> None:
    run_web(kubectl)
    kubectl("expose", "pod", "web", "--port=80", "--target-port=8080")
    with kubectl.started("port-forward", target, ":80" if target == "svc/web" else ":8080") as forwarding:
        assert forwarding.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert found
        for path in ("/one", "/two"):
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=30) as answer:
                assert f"GET {path} HTTP/1.1" in answer.read().decode()
    assert "GET /two 200" in kubectl("logs", "web")


def test_a_service_is_reached_at_its_address_and_through_the_server(kubectl: Kubectl) -> None:
    run_web(kubectl)
    kubectl("expose", "pod", "web", "--port=80", "--target-port=8080")
    address = read(kubectl, "svc/web", ".spec.clusterIP")

    def asked() -> str:
        try:
            with urllib.request.urlopen(f"http://{address}/direct", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError as error:
            return str(error)

    eventually_blocking(asked, until=lambda text: "GET /direct" in text)
    path = f"/api/v1/namespaces/{kubectl.namespace}"
    assert "GET /a" in kubectl("get", "--raw", f"{path}/services/web/proxy/a")
    assert "GET /b" in kubectl("get", "--raw", f"{path}/pods/web:8080/proxy/b")


def test_top_shows_what_pods_and_nodes_use(kubectl: Kubectl) -> None:
    run(kubectl, "p", "while :; do :; done")

    def used() -> tuple[int, int]:
        done = kubectl.run("top", "pod", "p", "--no-headers")
        found = re.search(r"(\d+)m +(\d+)Mi", done.stdout)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    eventually_blocking(used, until=lambda amounts: amounts[0] > 50 and amounts[1] >= 0, timeout_s=45)
    kubectl("delete", "pod", "p", "--now")
    header, row = kubectl("top", "node").splitlines()
    assert header.split()[:2] == ["NAME", "CPU(cores)"] and row.split()[0] == "node-1"


def test_run_shows_the_output_and_removes_the_pod(kubectl: Kubectl) -> None:
    done = kubectl(
        "run", "once", "--image=busybox", "--rm", "-i", "--restart=Never", "--quiet", "--", "echo", "done so"
    )
    assert "done so" in done
    assert "NotFound" in kubectl.fails("get", "pod", "once")


def test_a_pod_is_told_to_stop_before_it_is_killed(kubectl: Kubectl) -> None:
    run(kubectl, "p", "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    with kubectl.started("logs", "-f", "p") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "ready\n"
        kubectl("delete", "pod", "p")
        assert following.stdout.readline() == "told\n"


# Python clients


@pytest.fixture
def core(cluster: ServerProcess) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(cluster.kubeconfig) as made:
        yield kubernetes.client.CoreV1Api(made)


@contextlib.contextmanager
def command(core: Any, namespace: str, *words: str, stdin: bool = False) -> Iterator[Any]:
    session = stream(core.connect_get_namespaced_pod_exec, "p", namespace, command=list(words), stdout=True,
                     stderr=True, stdin=stdin, tty=False, _preload_content=False)  # fmt: skip
    try:
        yield session
    finally:
        session.sock.shutdown()  # close() leaves the socket open when the server has ended the session


def test_the_official_client_runs_commands(kubectl: Kubectl, core: Any) -> None:
    run(kubectl, "p", "sleep 600")
    with command(core, kubectl.namespace, "echo", "hello") as said:
        said.run_forever(timeout=30)
        assert said.returncode == 0 and said.read_all() == "hello\n"
    with command(core, kubectl.namespace, "sh", stdin=True) as session:
        session.write_stdin("echo from here\n")
        assert session.readline_stdout(timeout=30) == "from here"
        session.write_stdin("exit 5\n")
        session.run_forever(timeout=30)
        assert session.returncode == 5


def test_the_official_client_follows_logs(kubectl: Kubectl, core: Any) -> None:
    run(kubectl, "p", COUNTING)
    answer = core.read_namespaced_pod_log("p", kubectl.namespace, follow=True, _preload_content=False)
    with contextlib.closing(answer):
        text = b""
        while text.count(b"\n") < 3:
            text += answer.read1()
    assert text.splitlines()[:3] == [b"line 0", b"line 1", b"line 2"]


def test_lightkube_follows_logs(kubectl: Kubectl, cluster: ServerProcess) -> None:
    run(kubectl, "p", COUNTING)
    with Client(KubeConfig.from_file(cluster.kubeconfig), namespace=kubectl.namespace) as kube:
        with contextlib.closing(cast(Any, kube.log("p", follow=True))) as lines:
            assert [next(lines) for _ in range(3)] == ["line 0\n", "line 1\n", "line 2\n"]
