"""Follows the links of a built site: pages, anchors, and what pages load."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        for key in ("id", "name"):
            if value := found.get(key):
                self.anchors.add(value)
        if tag == "a" and (href := found.get("href")):
            self.links.append(href)
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload") and (href := found.get("href")):
            self.loads.append(href)
        if tag in _LOADS and (source := found.get(_LOADS[tag])):
            self.loads.append(source)


def faults_of(site: Path) -> list[str]:
    """Links that lead nowhere, and what pages load from elsewhere."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = pages[path.resolve()] = _Page()
        page.feed(path.read_text())
    faults: list[str] = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute: it is shown for any path
        shown = path.relative_to(site.resolve())
        for link in page.loads:
            if urlsplit(link).netloc:
                faults.append(f"{shown} loads {link} from elsewhere")
            elif not _target(path, link).is_file():
                faults.append(f"{shown} loads {link}, which does not exist")
        faults += [f"{shown}: {fault}" for link in page.links if (fault := _fault(path, link, pages))]
    return faults


def _fault(path: Path, link: str, pages: dict[Path, _Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = _target(path, link)
    if not target.is_file():
        return f"the link {link} leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"the link {link} leads to an anchor that does not exist"
    return ""


def _target(path: Path, link: str) -> Path:
    where = unquote(urlsplit(link).path)
    target = (path.parent / where).resolve() if where else path
    return target / "index.html" if target.is_dir() else target
