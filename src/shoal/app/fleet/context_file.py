"""The context for the command line that a control plane and a navigator write at their start, and how others get in.

Both gather it from the two directories, so it is complete whichever starts first:

    HOME/config.yaml            the context `control`
    HOME/control, HOME/navigator
        admin.token, pki/ca.crt, url (in the context), address (for the same machine)
"""

from __future__ import annotations

from pathlib import Path

from shoal.base.files import write_private
from shoal.cli.contexts import Context, read_contexts, save_context, write_contexts
from shoal.cli.contexts import Contexts as KnownContexts

NAME = "control"
URL, ADDRESS = "url", "address"


def note_url(folder: Path, url: str, address: str = "") -> None:
    """Keep the URL of a server for the context and for join files, and its ``address`` on this machine."""
    write_private(folder / URL, f"{url}\n".encode())
    if address:
        write_private(folder / ADDRESS, f"{address}\n".encode())


def noted_address(folder: Path) -> str:
    """The URL of a server for processes of its machine, or pod; empty before its first start."""
    try:
        return (folder / ADDRESS).read_text().strip()
    except OSError:
        return ""


def noted_url(folder: Path) -> str:
    try:
        return (folder / URL).read_text().strip()
    except OSError:
        return ""


def write_context(home: Path) -> Context | None:
    """Write the context of the servers in ``home``; None if there is no control plane. Another current context stays
    current."""
    control, navigator = home / "control", home / "navigator"
    if not noted_url(control):
        return None
    context = Context(
        NAME, noted_url(control), _text(control / "admin.token").strip(), _text(control / "pki" / "ca.crt"),
        navigator=noted_url(navigator), navigator_token=_text(navigator / "admin.token").strip(),
        navigator_ca=_text(navigator / "pki" / "ca.crt"),
    )  # fmt: skip
    before = read_contexts(home).current
    save_context(home, context)
    if before not in ("", NAME):
        write_contexts(home, KnownContexts(read_contexts(home).known, before))
    return context


def home_of(folder: Path, name: str) -> Path | None:
    """The home that a server's directory is in; None if it is elsewhere."""
    return folder.parent if folder.name == name else None


def guide(url: str, context: Path | None) -> list[str]:
    """How others get in."""
    where = f"; context {NAME} in {context}" if context is not None else ""
    return [
        f"control plane at {url} (API: {url}/docs){where}",
        "a person:   shoal token create --kind user --name NAME --role viewer",
        "a cluster:  shoal cluster join NAME --kubeconfig FILE --region REGION --image REGISTRY/NAME:TAG",
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
