"""Build the documentation as a site in build/site: `make docs`.

The pages of docs/ and the reference pages made from the code go to build/docs, where Zensical reads them. Files of the
repository that pages link to go with them. At the end every link and anchor of the site is followed, and no page may
load anything from elsewhere.

python scripts/docs/site.py --zensical PROGRAM            build and check
python scripts/docs/site.py --zensical PROGRAM --serve    build and check, then serve it on http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from links import faults_of
from reference import reference_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)]*)?\)")


def main() -> int:
    arguments = argparse.ArgumentParser(description="Build the documentation as a site in build/site.")
    arguments.add_argument("--zensical", type=Path, required=True, help="the program that makes the site")
    arguments.add_argument("--serve", action="store_true", help="serve it on http://127.0.0.1:8000 afterwards")
    options = arguments.parse_args()
    stage()
    subprocess.run([options.zensical, "build", "--clean", "--strict", "-f", ROOT / "mkdocs.yml"], check=True, cwd=ROOT)
    faults = faults_of(SITE)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if faults:
        return 1
    count = sum(1 for _ in SITE.rglob("*.html"))
    shown = SITE.relative_to(ROOT)
    print(f"{count} pages in {shown}, every link leads somewhere; open {shown}/index.html")
    if options.serve:
        handler = partial(SimpleHTTPRequestHandler, directory=str(SITE))
        print("http://127.0.0.1:8000 (Ctrl-C stops)", flush=True)
        ThreadingHTTPServer(("127.0.0.1", 8000), handler).serve_forever()
    return 0


def stage() -> None:
    """Copy the pages, and what they link to outside of docs/."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    shutil.copy(ROOT / "CHANGELOG.md", PAGES / "changelog.md")
    for path, text in reference_pages().items():
        (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / path).write_text(text)
    for page in sorted(PAGES.rglob("*.md")):
        page.write_text(_LINK.sub(partial(_inside, page), page.read_text()))


def _inside(page: Path, link: re.Match[str]) -> str:
    """A link to a file outside of docs/ leads to a copy of it."""
    target = link[2]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    source = (
        ROOT / ("" if page.name == "changelog.md" else "docs") / page.relative_to(PAGES).parent / target
    ).resolve()
    if not source.is_file() or source.is_relative_to(ROOT / "docs"):
        if page.name == "changelog.md":
            return f"{link[1]}{target.removeprefix('docs/')}{link[3] or ''})"
        return link[0]
    copied = PAGES / "files" / source.relative_to(ROOT)
    copied = copied.with_name(f"{copied.name}.txt") if copied.suffix == ".md" else copied
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, copied)
    up = "../" * len(page.relative_to(PAGES).parent.parts)
    return f"{link[1]}{up}{copied.relative_to(PAGES)})"


if __name__ == "__main__":
    sys.exit(main())
