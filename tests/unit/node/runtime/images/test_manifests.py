"""What manifests, configurations and settings say, and what is refused; which images go for the budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.node.runtime.images.config import RegistryConfig, load_image_config
from shoal.node.runtime.images.garbage import Candidate, to_remove
from shoal.node.runtime.images.manifests import BadImage, Platform, choose, document, parse_manifest, parse_settings
from shoal.node.runtime.images.references import full_reference
from shoal.testing.images import digest

SIZE = {"size": 1, "digest": digest(b"x")}
ARM = Platform("arm", variant="v7")


def entry(architecture: str, variant: str = "", os: str = "linux", size: int = 1) -> dict[str, Any]:
    return {**SIZE, "size": size, "platform": {"architecture": architecture, "variant": variant, "os": os}}


def test_the_best_variant_that_the_machine_runs_is_chosen() -> None:
    index = {"manifests": [entry("arm", "v6", size=6), entry("arm", "v7", size=7), entry("arm", "v8", size=8)]}
    assert choose(index, ARM).size == 7
    assert choose({"manifests": [entry("arm64", size=1), entry("amd64", size=2)]}, Platform("amd64")).size == 2
    assert choose({"manifests": [entry("arm64", "v8", size=3)]}, Platform("arm64", variant="v8")).size == 3
    with pytest.raises(BadImage, match=r"no image for linux/arm/v7: there are linux/amd64, windows/arm"):
        choose({"manifests": [entry("amd64"), entry("arm", "v7", "windows"), entry("unknown", os="unknown")]}, ARM)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"schemaVersion": 1, "fsLayers": []}, "version 1"),
        ({"config": SIZE}, "no list of layers"),
        ({"config": SIZE, "layers": [SIZE] * 4}, "4 layers; the limit is 3"),
        ({"config": SIZE, "layers": [{**SIZE, "size": -1}]}, "invalid size"),
        ({"config": SIZE, "layers": [{**SIZE, "digest": "sha256:../../x"}]}, "invalid digest"),
        ({"config": SIZE, "layers": [{**SIZE, "mediaType": "application/x"}]}, "not supported"),
        ({"config": None, "layers": []}, "no valid config"),
    ],
)
def test_a_bad_manifest_says_what_is_wrong(content: dict[str, Any], why: str) -> None:
    with pytest.raises(BadImage, match=why):
        parse_manifest(content, most_layers=3)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"Env": "A\0=b"}, "not a text"),
        ({"Env": 3}, "list of texts"),
        ({"Volumes": {"../x": {}}}, "invalid volume"),
        ({"Volumes": {"/": {}}}, "invalid volume"),
        ({"ExposedPorts": {"99999/tcp": {}}}, "invalid port"),
        ({"User": 5}, "User of the image is invalid"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(config: dict[str, Any], why: str) -> None:
    raw = json.dumps({"rootfs": {"diff_ids": [digest(b"x")]}, "config": config}).encode()
    with pytest.raises(BadImage, match=why):
        parse_settings(raw, digest(raw), Platform("amd64"))


def test_ports_and_volumes_of_an_image_are_read() -> None:
    config = {"ExposedPorts": {"53/udp": {}, "8443/tcp": {}, "8080": {}}, "Volumes": {"/data": {}}, "StopSignal": "3"}
    raw = json.dumps({"rootfs": {"diff_ids": [digest(b"x")]}, "config": config}).encode()
    image = parse_settings(raw, digest(raw), Platform("amd64")).image(("a",), 1)
    assert (image.port, image.volumes, image.stop_signal) == (8080, ("/data",), "3")


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["config", "layers", "manifests", "rootfs", "diff_ids", "digest", "size", "Env", "platform"]), inner
), max_leaves=20))  # fmt: skip
def test_no_document_does_anything_but_be_refused(value: Any) -> None:
    raw = json.dumps(value).encode()
    for read in (
        lambda: parse_manifest(document(raw, "manifest"), most_layers=9),
        lambda: choose(document(raw, "index"), ARM),
        lambda: parse_settings(raw, digest(raw), ARM),
    ):
        try:
            read()
        except BadImage:
            pass


def test_names_are_full() -> None:
    names = ["web", "shop/web:2", "index.docker.io/library/web", "localhost:5000/web", "registry.example/a/b"]
    assert [full_reference(each).canonical for each in names] == [
        "docker.io/library/web:latest", "docker.io/shop/web:2", "docker.io/library/web:latest", "localhost:5000/web:latest",
        "registry.example/a/b:latest",
    ]  # fmt: skip


def test_settings_come_from_the_file_of_the_cluster(tmp_path: Path) -> None:
    assert load_image_config(tmp_path).budget_bytes == 20 << 30
    (tmp_path / "ca.pem").touch()
    path = tmp_path / "image-store.yaml"
    path.write_text("budget: 5Gi\nlayer: {entries: 10}\nregistries: {'r:5000': {ca: ca.pem}, q: {insecure: true}}")
    found = load_image_config(tmp_path)
    assert (found.budget_bytes, found.limits.entries) == (5 << 30, 10)
    assert found.registry("r:5000") == RegistryConfig(ca=tmp_path / "ca.pem") and found.registry("q").insecure
    for text, why in (
        ("budget: much", "budget is 'much'"),
        ("size: 3", "expected a mapping with budget"),
        ("layer: {ratio: 0}", "must be 1 or more"),
        ("registries: {r: {ca: other.pem}}", "no such file"),
        ("registries: {r: {insecure: maybe}}", "use true or false"),
        ("registries: [r]", "use a mapping"),
        ("[", "cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            load_image_config(tmp_path)


def test_shared_layers_count_once_and_are_free_with_their_last_image() -> None:
    images = [
        Candidate("old", {"base": 100, "a": 10}, 1),
        Candidate("new", {"base": 100, "b": 10}, 2),
        Candidate("newest", {"c": 50}, 3),
    ]

    def removed(budget: int, in_use: tuple[str, ...] = (), used_since: float = 9) -> list[str]:
        return to_remove(images, budget_bytes=budget, in_use=in_use, used_since=used_since)

    assert removed(170) == [] and removed(169) == ["old", "new"] and removed(0) == ["old", "new", "newest"]
    assert removed(0, in_use=("old",)) == ["new", "newest"] and removed(0, used_since=1) == ["old"]
