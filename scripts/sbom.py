#!/usr/bin/env python3
"""Writes the software bill of materials of what users install, and audits it.

    sbom.py [FILE]      writes FILE, else build/sbom.json
    sbom.py --check     only audits

The bill is CycloneDX 1.5 JSON: every package of requirements.lock with its version, licence and the hashes of its
files. The audit needs no network: it fails when a package has no hash, is installed in another version than the lock
file says, or has a licence that is not in the list below. Known vulnerabilities are not looked up: feed the file to a
scanner that has its data.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LICENCES = {
    "Apache", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "ISCL", "MIT", "MIT-0", "MPL", "MPL-2.0",
    "PSF-2.0",
}  # fmt: skip
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)([^\n]*(?:\n    [^\n]*)*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked() -> list[tuple[str, str, list[str]]]:
    """Name, version and hashes of each package in the lock file."""
    text = (ROOT / "requirements.lock").read_text()
    return [(name, version, _HASH.findall(rest)) for name, version, rest in _ENTRY.findall(text)]


def licence_of(name: str) -> str:
    """What a package says about its licence; empty if it is not installed on this platform."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    classified = [
        each.rpartition("::")[2].strip() for each in about.get_all("Classifier", []) if each.startswith("License ::")
    ]
    return str(about.get("License-Expression") or ", ".join(classified) or about.get("License") or "unknown")


def faults() -> list[str]:
    found = []
    for name, version, hashes in locked():
        if not hashes:
            found.append(f"{name} {version} has no hash in requirements.lock; run `make lock`")
        licence = licence_of(name)
        if not licence:
            continue  # for other platforms only
        installed = metadata.version(name)
        if installed != version:
            found.append(f"{name} is installed in version {installed}, the lock file has {version}; run `make setup`")
        words = set(re.findall(r"[A-Za-z0-9.-]+", licence))
        if not words & LICENCES:
            found.append(f"{name} {version} has the licence {licence!r}; look whether it may be used")
    return found


def bill() -> dict[str, object]:
    components = []
    for name, version, hashes in locked():
        component: dict[str, object] = {
            "type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name.lower()}@{version}",
            "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
        }  # fmt: skip
        if licence := licence_of(name):
            component["licenses"] = [{"license": {"name": licence}}]
        components.append(component)
    code = (ROOT / "src" / "shoal" / "__init__.py").read_text()  # what is installed may be of another checkout
    (version,) = re.findall(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    about = {"component": {"type": "application", "name": "shoal-fleet", "version": version}}
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": about, "components": components}


def main() -> int:
    found = faults()
    for each in found:
        print(f"error: {each}", file=sys.stderr)
    if "--check" not in sys.argv:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(bill(), indent=1) + "\n")
        print(f"wrote {path}: {len(locked())} packages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
