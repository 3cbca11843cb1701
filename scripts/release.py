#!/usr/bin/env python3
"""Makes a release of what is committed: everything that users get, in dist/, and a tag.

    release.py --prepare 0.2.0    writes the version into the code, the changelog and the charts, for a commit
    release.py --dry-run          checks and builds everything, without tag and commit
    release.py                    the same, then tags the commit and notes it in docs/releases.json

dist/ gets the wheel and the source of shoal-fleet, the wheel of pytest-shoal, the charts, the container image, the
bill of materials and SHA256SUMS. Without podman, or with --no-image, there is no image; --image and --image-options go
on to scripts/image.sh. Nothing is uploaded. docs/operations/releasing.md has the steps before and after.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = "src/shoal/__init__.py"
CHANGELOG = "CHANGELOG.md"
RELEASES = "docs/releases.json"
UNRELEASED = "## [Unreleased]\n"
_VERSION = re.compile(r"^(\d+)\.(\d+)\.(\d+)(?:(?:a|b|rc)\d+)?$")


class Fault(Exception):
    """Why there is no release; the message has the fix."""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def version_in(text: str) -> str:
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise Fault(f'{CODE} has no line __version__ = "…"')
    return found[1]


def section_of(changelog: str, version: str) -> str:
    """The changes of a version, without the heading; empty if there is no such section."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def charts() -> list[Path]:
    return sorted(path.parent for path in ROOT.glob("charts/*/Chart.yaml"))


def check() -> str:
    """The version that can be released from what is committed."""
    if changed := git("status", "--porcelain"):
        raise Fault(f"not everything is committed; commit or stash it:\n{changed}")
    version = version_in((ROOT / CODE).read_text())
    if not _VERSION.match(version):
        raise Fault(f"{CODE} has the version {version!r}; use numbers such as 1.2.0 or 1.2.0rc1")
    released = {each["version"] for each in json.loads((ROOT / RELEASES).read_text())["releases"]}
    if version in released or git("tag", "--list", f"v{version}"):
        raise Fault(f"{version} is released already; write the next one with: scripts/release.py --prepare VERSION")
    changelog = (ROOT / CHANGELOG).read_text()
    if not section_of(changelog, version):
        raise Fault(f"{CHANGELOG} has no changes under ## [{version}]; see scripts/release.py --prepare {version}")
    if section_of(changelog, "Unreleased"):
        raise Fault(
            f"{CHANGELOG} has changes under {UNRELEASED.strip()} that {version} has too; move them below ## [{version}]"
        )
    for chart in charts():
        about = (chart / "Chart.yaml").read_text()
        for key in ("version", "appVersion"):
            found = re.search(rf"^{key}:\s*[\"']?([^\"'\s]+)", about, re.MULTILINE)
            if found is None or found[1] != version:
                raise Fault(
                    f"{chart.name}/Chart.yaml has {key} {found[1] if found else 'not set'}; set it to {version}"
                )
    return version


def prepare(version: str, today: datetime.date) -> None:
    """Write the version where it stands; the changes that are not released become its own."""
    if not _VERSION.match(version):
        raise Fault(f"version is {version!r}; use numbers such as 1.2.0 or 1.2.0rc1")
    changelog = (ROOT / CHANGELOG).read_text()
    if not section_of(changelog, "Unreleased"):
        raise Fault(f"{CHANGELOG} has no changes under {UNRELEASED.strip()}")
    replace(ROOT / CHANGELOG, re.escape(UNRELEASED), f"{UNRELEASED}\n## [{version}] - {today.isoformat()}\n")
    replace(ROOT / CODE, r'^__version__ = ".+"$', f'__version__ = "{version}"')
    for chart in charts():
        replace(chart / "Chart.yaml", r"^version:.*$", f"version: {version}")
        replace(chart / "Chart.yaml", r"^appVersion:.*$", f'appVersion: "{version}"')


def replace(path: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, lambda _: by, path.read_text(), count=1, flags=re.MULTILINE)
    if count != 1:
        raise Fault(f"{path.relative_to(ROOT)} has no line that matches {pattern}")
    path.write_text(text)


def build(version: str, options: argparse.Namespace) -> list[Path]:
    """All artifacts of a version, in an empty dist/."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    epoch = git("show", "--no-patch", "--format=%ct", "HEAD")
    environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    with tempfile.TemporaryDirectory(prefix="shoal-release-") as folder:
        # From what is committed, so that no file that git ignores gets in
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        tree = Path(folder)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
        for project, targets in ((tree, ("sdist", "wheel")), (tree / "packages" / "pytest-shoal", ("wheel",))):
            asked = [option for target in targets for option in ("-t", target)]
            run([sys.executable, "-m", "hatchling", "build", *asked, "-d", str(dist)], cwd=project, env=environ)
    for chart in charts():
        package(chart, dist / f"{chart.name}-{version}.tgz", int(epoch))
    run([sys.executable, str(ROOT / "scripts" / "sbom.py"), str(dist / f"shoal-fleet-{version}.sbom.json")])
    if options.image_wanted:
        image = ["--image", options.image] if options.image else []
        output = dist / f"shoal-image-{version}.tar"
        run([str(ROOT / "scripts" / "image.sh"), *image, "--output", str(output), *shlex.split(options.image_options)])
    made = sorted(dist.iterdir())
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in made)
    (dist / "SHA256SUMS").write_text(sums)
    return [*made, dist / "SHA256SUMS"]


def run(command: list[str], *, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Fault(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


def package(chart: Path, target: Path, epoch: int) -> None:
    """A chart as Helm packages it: its folder, compressed. The same files give the same bytes."""
    with target.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as files:
            for path in sorted(tracked(chart)):
                about = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart)}")
                about.size, about.mtime = path.stat().st_size, epoch
                with path.open("rb") as content:
                    files.addfile(about, content)


def tracked(folder: Path) -> Iterator[Path]:
    yield from (ROOT / name for name in git("ls-files", str(folder.relative_to(ROOT))).splitlines())


def digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def publish(version: str) -> None:
    """Tag the commit, and note it in the list of releases, with a commit of its own."""
    commit = git("rev-parse", "HEAD")
    git("tag", "--annotate", f"v{version}", "--message", f"Shoal {version}")
    listed = json.loads((ROOT / RELEASES).read_text())["releases"]
    rows = [json.dumps(each) for each in [*listed, {"version": version, "commit": commit}]]
    (ROOT / RELEASES).write_text('{\n  "releases": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n")
    git("commit", "--quiet", "--message", f"The commit of release {version}", "--", RELEASES)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="release.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prepare", metavar="VERSION", help="write the version into the files, and nothing else")
    parser.add_argument("--dry-run", action="store_true", help="neither tag nor commit")
    parser.add_argument("--no-image", action="store_true", help="build no container image")
    parser.add_argument("--image", default="", help="name of the container image, REGISTRY/NAME:TAG")
    parser.add_argument("--image-options", default="", help="further options of scripts/image.sh, as one text")
    options = parser.parse_args()
    options.image_wanted = not options.no_image and shutil.which("podman") is not None
    try:
        if options.prepare:
            prepare(options.prepare, datetime.datetime.now(datetime.UTC).date())
            print(f"release: {options.prepare} is written; look at `git diff`, commit, then run: make release")
            return 0
        version = check()
        made = build(version, options)
        for path in made:
            print(f"release: {path.relative_to(ROOT)}, {path.stat().st_size / 1e6:.1f} MB")
        if not options.image_wanted:
            print(
                f"release: without a container image, {'as asked' if options.no_image else 'since podman is missing'}"
            )
        if options.dry_run:
            print(f"release: {version} can be released; nothing is tagged, since this is a dry run")
            return 0
        publish(version)
        print(f"release: {version} is tagged v{version}; push the tag and the branch, and upload dist/")
        return 0
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
