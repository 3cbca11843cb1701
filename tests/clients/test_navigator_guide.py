"""The guide to the navigator does what it says: its questions are asked of a running ``shoal up``."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import urllib.request
from pathlib import Path

import pytest

from shoal.testing.waiting import eventually_blocking

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "navigator.md"
_EXITS = {"shoal lint": 1}  # the demo has a mistake
_SEEN_S = 60.0


def asked(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line, comments=True)
    return subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)


def is_seen(environment: dict[str, str]) -> bool:
    """Whether the navigator has the demo app of both regions and what is wrong in its mesh."""
    regions = asked("shoal query \"pods where app = 'web' and ready count by region\"", environment).stdout
    return "eu" in regions and "us" in regions and "unknown-subset" in asked("shoal lint", environment).stdout


@pytest.mark.xdist_group("shoal up")
def test_every_question_of_the_guide_is_answered(environment: dict[str, str]) -> None:
    what = "the demo app of both regions, and the mistake in its mesh"
    eventually_blocking(lambda: is_seen(environment), timeout_s=_SEEN_S, every_s=0.2, what=what)
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE)]
    assert len(lines) > 12
    for line in lines:
        ran = asked(line, environment)
        expected = next((code for words, code in _EXITS.items() if line.startswith(words)), 0)
        assert ran.returncode == expected, f"{line}\n{ran.stdout}{ran.stderr}"
    nodes = asked("shoal query 'nodes where ready'", environment).stdout
    assert "eu-1" in nodes and "us-1" in nodes


def calls_to_web(environment: dict[str, str]) -> dict[str, str]:
    """Cluster → success of its gateway's calls to the demo app, as the service graph shows them."""
    graph = json.loads(asked("shoal mesh graph -o json", environment).stdout)
    return {
        pair["source"]: f"{pair['successRate']}"
        for each in graph["connections"] if each["destination"]["service"] == "web"
        for pair in each["between"]
    }  # fmt: skip


@pytest.mark.xdist_group("shoal up")
def test_the_graph_shows_the_calls_of_the_demo_without_a_prometheus(environment: dict[str, str]) -> None:
    log = (Path(environment["TMP_FOLDER"]) / "up.log").read_text()
    addresses = re.findall(r"http://(127\.[\d.]+):8040/", log)
    assert len(addresses) == 2
    for address in addresses:
        request = urllib.request.Request(f"http://{address}:8040/", headers={"Host": "welcome.localhost"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(5):
            with opener.open(request, timeout=10) as answer:
                assert answer.status == 200
    expected = {"eu-1": "1.0", "us-1": "1.0"}
    eventually_blocking(
        lambda: calls_to_web(environment), until=expected.__eq__, timeout_s=_SEEN_S, every_s=0.5
    )  # fmt: skip
    assert "web" in asked("shoal mesh graph web", environment).stdout


def items_of(query: str, environment: dict[str, str]) -> list[dict[str, object]]:
    ran = asked(f"shoal query {shlex.quote(query)} -o json", environment)
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, object]] = json.loads(ran.stdout)
    return found


@pytest.mark.xdist_group("shoal up")
def test_events_routes_and_apps_of_the_demo_can_be_queried(environment: dict[str, str]) -> None:
    """Every query is asked until it has the answer of both regions: edges are a moment behind."""

    def answered(query: str, **expected: object) -> None:
        def has_both() -> bool:
            items = [each for each in items_of(query, environment) if expected.items() <= each.items()]
            return {each["cluster"] for each in items} >= {"eu-1", "us-1"}

        eventually_blocking(has_both, timeout_s=_SEEN_S, every_s=0.2, what=query)

    answered("apps where app = 'web' and ready", project="welcome", environment="production", replicas=2)
    answered("routes where host = 'welcome.localhost'", kind="SentinelRoute", path=["/"])
    answered("events where reason = 'Scheduled' and object_kind = 'Pod'", type="Normal")


@pytest.mark.xdist_group("shoal up")
def test_the_error_of_an_invalid_query_points_to_the_mistake(environment: dict[str, str]) -> None:
    ran = asked("shoal query 'pods where imag ~ x'", environment)
    assert ran.returncode != 0
    assert "^" in ran.stderr and "image" in ran.stderr
