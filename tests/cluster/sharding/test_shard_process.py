"""`shoal shard manager` as a process beside a cluster: it becomes ready, answers, assigns slots at admission, stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import orjson
from shard_world import NAMESPACE
from test_shard_sweep import website

from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.client import Client, Scope, builtin, connect, load
from shoal.sharding.manager.admission import webhook_configuration
from shoal.sharding.manager.writers import CONFIGS, TABLE
from shoal.sharding.model import CONFIG_LABEL, slot_of
from shoal.sharding.rbac import TargetKind
from shoal.sharding.ring import object_key, slot_of_key
from shoal.testing.servers import server_process
from shoal.testing.waiting import eventually

TARGET = TargetKind("example.com", "websites")


def answer(url: str) -> tuple[bytes, float]:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read(), time.perf_counter() - began


async def life(client: Client, port: int, hook: dict) -> None:
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }  # fmt: skip
    names = {"kind": "Website", "plural": "websites", "singular": "website"}
    definition = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(
        {"metadata": {"name": "websites.example.com"}, "spec": definition}
    )
    await client.of(builtin("mutatingwebhookconfigurations", "admissionregistration.k8s.io")).create(hook)
    targets = [{"group": "example.com", "kind": "Website"}]
    await client.of(CONFIGS).create(
        {"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {"minShards": 2, "targets": targets}}
    )

    async def tables() -> bool:
        scope = Scope(namespace=NAMESPACE, label_selector=f"{CONFIG_LABEL}=web")
        return len((await client.of(TABLE).list(scope)).items) == 4

    await eventually(tables, timeout_s=30.0)
    websites = await client.by_kind("Website", "example.com/v1")
    made = 0

    async def at_admission() -> bool:
        """The answer to the create has a slot, so the sweep did not assign it."""
        nonlocal made
        made += 1
        created = await websites.create(website(f"site-{made}"))
        expected = slot_of_key(object_key("example.com", "Website", NAMESPACE, f"site-{made}"))
        return slot_of(created, "web") == expected

    await eventually(at_admission, timeout_s=30.0)
    generated = [slot_of(await websites.create(website("made-")), "web") for _ in range(5)]
    assert None not in generated
    assert len(set(generated)) == 5
    kept = await websites.create(website("chosen", **{"slot.shard.io/web": "17"}))
    assert slot_of(kept, "web") == 17
    ready, _ = await asyncio.to_thread(answer, f"http://127.0.0.1:{port}/readyz")
    assert orjson.loads(ready)["ok"] is True
    metrics, _ = await asyncio.to_thread(answer, f"http://127.0.0.1:{port}/metrics")
    assert b"shard_controller_shards_total" in metrics
    assert b'shard_controller_assignments_total{by="webhook"}' in metrics
    status, _ = await asyncio.to_thread(answer, f"http://127.0.0.1:{port}/status")
    assert "default/web" in orjson.loads(status)["configs"]
    times = [(await asyncio.to_thread(answer, f"http://127.0.0.1:{port}/livez"))[1] for _ in range(5)]
    assert min(times) < 0.1


async def test_a_manager_as_a_process(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki", now=datetime.now(UTC))
    pair = pki.ensure_server(["127.0.0.1"])
    port, webhook_port = any_free("127.0.0.1"), any_free("127.0.0.1")
    hook = webhook_configuration("web", [TARGET], url=f"https://127.0.0.1:{webhook_port}", ca=pki.ca_cert.read_text())
    with server_process() as server:
        command = [
            sys.executable, "-m", "shoal", "shard", "manager", "--kubeconfig", server.kubeconfig, "--install",
            "--namespace", "default", "--port", str(port), "--webhook-port", str(webhook_port),
            "--webhook-certificate", str(pair.cert), "--webhook-key", str(pair.key), "--log-level", "warning",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"

            async with connect(load(Path(server.kubeconfig)), clock=RealClock()) as client:
                await life(client, port, hook)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
