"""What clients ask of logs and streams, and what kubelets are asked for them."""

from __future__ import annotations

import pytest

from shoal.apiserver.negotiate import query
from shoal.apiserver.nodes.options import connect_options, kubelet_parameters, log_options
from shoal.errors import BadRequest, Invalid


def test_a_kubelet_gets_the_log_options_that_were_given() -> None:
    text = (
        "container=c&follow=true&previous=false&tailLines=0&sinceSeconds=5&timestamps=1&limitBytes=9&stream=All&junk=1"
    )
    found = log_options(query(text), "p")
    assert (found.container, found.insecure) == ("c", False)
    assert found.parameters == [
        ("follow", "true"), ("limitBytes", "9"), ("sinceSeconds", "5"), ("stream", "All"), ("tailLines", "0"),
        ("timestamps", "true"),
    ]  # fmt: skip
    assert log_options(query("insecureSkipTLSVerifyBackend=true"), "p").insecure
    since = "2026-01-01T00:00:00Z"
    assert log_options(query(f"sinceTime={since}"), "p").parameters == [("sinceTime", since)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            ": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=None", 'stream: Unsupported value: "None": supported values: "All", "Stderr", "Stdout"'),
        (
            "stream=Stderr&tailLines=1",
            ": Forbidden: `tailLines` and specific `stream` are mutually exclusive for now",
        ),
    ],
)
def test_log_options_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        log_options(query(text), "p")
    assert refused.value.message == f'PodLogOptions "p" is invalid: {message}'


@pytest.mark.parametrize("text", ["tailLines=x", "sinceTime=yesterday", "limitBytes=99999999999999999999"])
def test_log_options_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        log_options(query(text), "p")


def test_a_commands_options_become_an_object_and_the_kubelets_parameters() -> None:
    text = "command=sh&command=-c&command=a%20b&container=c&stdin=true&stdout=true&stderr=false&tty=1"
    made = connect_options("PodExecOptions", query(text), text, "")
    assert made == {
        "kind": "PodExecOptions", "apiVersion": "v1", "stdin": True, "stdout": True, "tty": True, "container": "c",
        "command": ["sh", "-c", "a b"],
    }  # fmt: skip
    assert kubelet_parameters(made) == "input=1&output=1&tty=1&command=sh&command=-c&command=a+b"
    assert "command" not in connect_options("PodAttachOptions", query(text), text, "")


def test_ports_and_paths_are_part_of_the_object() -> None:
    text = "ports=80&ports=81,82"
    made = connect_options("PodPortForwardOptions", query(text), text, "")
    assert made["ports"] == [80, 81, 82] and kubelet_parameters(made) == "port=80%2C81%2C82"
    with pytest.raises(BadRequest):
        connect_options("PodPortForwardOptions", query("ports=x"), "ports=x", "")
    assert connect_options("PodProxyOptions", query(""), "", "/a/b")["path"] == "/a/b"
