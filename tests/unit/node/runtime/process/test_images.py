"""The image table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.node.runtime.model import ContainerSpec, ImageFailure, ImageFault, argv_of
from shoal.node.runtime.process.images import load_table, parse_reference


def test_an_image_is_found_with_and_without_registry_and_its_tag_is_filled_in() -> None:
    table = load_table()
    for name in ("shoal/demo-app:v2", "registry.example.com:5000/shoal/demo-app:v2", "docker.io/shoal/demo-app:v2"):
        found = table.find(name)
        assert found is not None
        assert found.entrypoint == (sys.executable, "-m", "shoal.app.demo", "v2")
    assert table.find("docker.io/library/busybox") == table.find("docker.io/library/busybox:latest")
    assert table.find("registry.k8s.io/pause:3.10") is not None


def test_arguments_of_a_pod_replace_those_of_the_image_but_not_its_program(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("images: {shop/web: {argv: [web, '--tag={tag}'], args: [--fast], env: {COLOUR: red}}}")
    found = load_table([file]).find("shop/web:7")
    assert found is not None
    assert (found.entrypoint, found.command, found.env) == (("web", "--tag=7"), ("--fast",), (("COLOUR", "red"),))


def test_a_pod_of_python_names_its_program_as_it_does_with_the_real_image() -> None:
    image = load_table().find("python:3.12")
    assert image is not None
    spec = ContainerSpec(name="c", attempt=0, image=image, image_reference="python:3.12")
    assert argv_of(spec) == (sys.executable,)
    assert argv_of(replace(spec, args=("python3", "-m", "http.server"))) == ("python3", "-m", "http.server")


def test_entries_of_users_come_first_and_a_tag_before_its_repository(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("images: {nginx: [mine], 'nginx:old': [older]}")
    table = load_table([file], flags=["httpd=serve --port 1"])
    assert table.find("nginx:1").entrypoint == ("mine",)  # type: ignore[union-attr]
    assert table.find("nginx:old").entrypoint == ("older",)  # type: ignore[union-attr]
    assert table.find("httpd").entrypoint == ("serve", "--port", "1")  # type: ignore[union-attr]


def test_an_unknown_image_names_the_tables_that_were_searched(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("images: {a: [b]}")
    table = load_table([file])
    assert table.find("what/ever:1") is None
    failure = table.missing("what/ever:1")
    assert failure.fault is ImageFault.PULL
    assert str(file) in str(failure) and "what/ever:1" in str(failure) and "command" in str(failure)


@pytest.mark.parametrize("name", ["", "lower/UPPER", "a b", "a:", ":tag", "a//b", "-a", "a@sha256:short"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ImageFailure) as caught:
        parse_reference(name)
    assert caught.value.fault is ImageFault.INVALID_NAME


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "images: [a]",
        "images: {a: {}}",
        "images: {a: {argv: x}}",
        "images: {a: {argv: [b], x: 1}}",
        "images: {'A b': [c]}",
        "{",
    ],
)
def test_a_table_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="images.yaml"):
        load_table([file])
    with pytest.raises(ConfigError, match="--image"):
        load_table(flags=["x"])


@pytest.mark.parametrize("port", ["http", -1, 70000])
def test_the_port_of_an_image_is_a_port_number(tmp_path: Path, port: object) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(f"images: {{shop/web: {{argv: [web], port: {port}}}}}")
    with pytest.raises(ConfigError, match=r"shop/web: port is .*, it must be a number from 1 to 65535"):
        load_table([file])
