"""What the Dockerfile promises to clusters, without building it; tests/chaos/test_image.py builds and runs it."""

from __future__ import annotations

import re
import subprocess

import pytest
from arch_source import ROOT

FOLDER = ROOT / "deploy" / "image"
LINES = [
    line
    for line in (FOLDER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def values(instruction: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in LINES if line.split()[0] == instruction]


def test_nothing_is_pulled_that_was_not_named() -> None:
    assert values("ARG")[0] == "BASE"  # without a default
    assert [each.split(" AS ")[0] for each in values("FROM")] == ["${BASE}", "${BASE}"]
    assert not re.search(r"https?://|curl|wget|apt-get", "\n".join(LINES))


def test_the_user_is_a_number_and_health_is_left_to_probes() -> None:
    last = LINES[max(at for at, line in enumerate(LINES) if line.startswith("FROM")) :]
    assert "USER 65532:65532" in last
    assert not values("HEALTHCHECK") and not values("EXPOSE") and not values("VOLUME")
    assert values("ENTRYPOINT") == ['["/opt/shoal/bin/shoal"]'] and not values("CMD")


def test_the_base_needs_no_shell() -> None:
    assert values("RUN") and all(each.startswith("[") for each in values("RUN"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bse", "x"], "unknown option --bse"),
        (["--base"], "--base needs a value"),
        (["--base", "a", "--base-tar", "b"], "name --base or --base-tar, not both"),
        (["--podman", "no-such-program"], "no-such-program is missing"),
    ],
)
def test_wrong_options_of_the_build_are_told_in_one_line(options: list[str], said: str) -> None:
    done = subprocess.run([str(ROOT / "scripts" / "image.sh"), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("image: ") and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_build_says_how_to_get_an_image_as_a_file() -> None:
    shown = subprocess.run([str(ROOT / "scripts" / "image.sh"), "--help"], capture_output=True, text=True, check=True)
    assert "--output FILE" in shown.stdout and "--wheelhouse DIR" in shown.stdout
