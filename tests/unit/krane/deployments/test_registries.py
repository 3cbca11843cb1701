"""Credentials of image registries, as nodes read them."""

from __future__ import annotations

import base64

import orjson
import pytest
from rendered_states import OWNER, pod_spec, state

from shoal.errors import Invalid
from shoal.krane.deployments.registries import docker_config
from shoal.krane.deployments.render import render
from shoal.krane.deployments.rendering import Rendering
from shoal.wire.fleet.v1 import cluster_pb as pb

OURS = {"SERVER": "registry.example.com:5000", "USERNAME": "shop", "PASSWORD": "hunter2"}
SEALED = pb.SealedSecret(secret="sec_1", version=1)


def test_every_registry_is_in_one_file_with_its_server_user_and_password():
    found = orjson.loads(docker_config([OURS, {**OURS, "SERVER": "ghcr.io", "USERNAME": "ci"}]))["auths"]
    assert found["registry.example.com:5000"] == {
        "username": "shop", "password": "hunter2", "auth": base64.b64encode(b"shop:hunter2").decode(),
    }  # fmt: skip
    assert found["ghcr.io"]["username"] == "ci"
    assert docker_config([]) == ""


@pytest.mark.parametrize(
    "server", ["docker.io", "https://index.docker.io/v1/", "registry-1.docker.io", "index.docker.io"]
)
def test_docker_hub_has_the_name_that_nodes_look_for(server):
    assert set(orjson.loads(docker_config([{**OURS, "SERVER": server}]))["auths"]) == {"https://index.docker.io/v1/"}


def test_a_server_is_a_host_however_it_is_written():
    assert set(orjson.loads(docker_config([{**OURS, "SERVER": "https://registry.example.com/"}]))["auths"]) == {
        "registry.example.com"
    }


@pytest.mark.parametrize("name", ["SERVER", "USERNAME", "PASSWORD"])
def test_what_is_missing_is_named_and_no_value_is(name):
    with pytest.raises(Invalid) as refused:
        docker_config([{**OURS, name: ""}])
    assert f"registries.{name}" in str(refused.value) and "hunter2" not in str(refused.value)


def test_pods_name_the_secret_and_nothing_else_holds_the_password():
    config = docker_config([OURS])
    made = render(state(registries=[SEALED]), OWNER, {}, Rendering(2), registries=config)
    assert pod_spec(made)["imagePullSecrets"] == [{"name": "web-1-abc-registries"}]
    (secret,) = [each for each in made.objects if each["kind"] == "Secret"]
    assert (secret["metadata"]["name"], secret["type"]) == ("web-1-abc-registries", "kubernetes.io/dockerconfigjson")
    assert base64.b64decode(secret["data"][".dockerconfigjson"]).decode() == config
    rest = repr([each for each in made.objects if each is not secret])
    assert "hunter2" not in rest and secret["data"][".dockerconfigjson"] not in rest


def test_what_earlier_rules_rendered_is_not_restarted_for_a_registry():
    made = render(state(registries=[SEALED]), OWNER, {}, Rendering(1), registries=docker_config([OURS]))
    assert "imagePullSecrets" not in pod_spec(made)
