"""The tracer of a gateway is in its configuration only if a collector is set."""

from __future__ import annotations

from dataclasses import replace

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from translate_objects import backend, inputs_of, route

from shoal.sentinel.model import Inputs
from shoal.sentinel.translate.translator import translate
from shoal.sentinel.xds.model import LISTENER


def managers(inputs: Inputs) -> list[hcm_pb2.HttpConnectionManager]:
    found = []
    for listener in translate(inputs)[LISTENER].values():
        for chain in listener.filter_chains:
            made = hcm_pb2.HttpConnectionManager()
            assert chain.filters[0].typed_config.Unpack(made)
            found.append(made)
    return found


def test_without_a_collector_the_configuration_is_the_one_without_traces() -> None:
    inputs = inputs_of(route("web", "shop.example", backend("dep_1")))
    assert managers(inputs) and not any(made.HasField("tracing") for made in managers(inputs))
    other = replace(inputs, settings=replace(inputs.settings, traces_percent=50.0))
    as_bytes = [{name: one.SerializeToString(deterministic=True) for name, one in made.items()}
                for made in (translate(inputs)[LISTENER], translate(other)[LISTENER])]  # fmt: skip
    assert as_bytes[0] == as_bytes[1]


def test_with_a_collector_every_listener_has_the_tracer() -> None:
    inputs = inputs_of(route("web", "shop.example", backend("dep_1")))
    settings = replace(inputs.settings, traces_url="http://127.0.0.1:4318", traces_percent=5.0)
    for made in managers(replace(inputs, settings=settings)):
        assert made.tracing.random_sampling.value == 5.0
        assert made.tracing.provider.name == "envoy.tracers.opentelemetry"
        assert {tag.tag for tag in made.tracing.custom_tags} <= {"shoal.sentinel", "shoal.region"}
