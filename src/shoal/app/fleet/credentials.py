"""What several control planes of a fleet share: CA, administrator's token, master key and URLs, in one private file.

``shoal control credentials export FILE`` writes it, ``shoal control start --credentials FILE`` imports it; the
directory of another control plane on this machine works too. The file has all secrets of a fleet: it is refused if
other users can read it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.app.files import make_private_dir
from shoal.base.files import write_private
from shoal.control.secrets.wiring import DEFAULT_FILE
from shoal.errors import ConfigError

KIND = "shoal control credentials"
_CA_CERT, _CA_KEY, _MANIFEST, _ADMIN = "pki/ca.crt", "pki/ca.key", "pki/manifest.json", "admin.token"
_JOIN_URLS = "join-urls.json"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,]+")


def export_credentials(folder: Path, to: Path) -> None:
    """Export the credentials in the directory of a control plane that was started before."""
    write_private(to, exported(folder).encode())


def exported(folder: Path) -> str:
    """What the file of ``export_credentials`` has."""
    return json.dumps({"kind": KIND, **_of_directory(folder, "dir")}, indent=1) + "\n"


def take_over(source: Path, folder: Path) -> None:
    """Copy the credentials of a fleet to a directory; raises ``ConfigError`` if it has those of another fleet."""
    found = _of_directory(source, "credentials") if source.is_dir() else _of_file(source)
    if source.is_dir() and source.resolve() == folder.resolve():
        return
    make_private_dir(folder / "pki")
    if not _same_authority(folder, found):
        raise ConfigError(
            f"credentials is {str(source)!r}: {folder} already has the keys of another control plane; "
            "use another --dir, or remove its pki folder"
        )
    if not (folder / _CA_KEY).exists():
        write_private(folder / _CA_KEY, found["ca.key"].encode())
        write_private(folder / _CA_CERT, found["ca.crt"].encode())
        write_private(folder / _MANIFEST, json.dumps({"ca": found["ca"]}).encode())
    if "master.key" in found:
        _take_master_key(source, folder / DEFAULT_FILE, found["master.key"])
    write_private(folder / _ADMIN, found["admin.token"].encode())
    _write_join_urls(folder, _join_urls(folder).get("own", []), found.get("urls", []))


def keep_join_urls(folder: Path, own: Sequence[str]) -> tuple[str, ...]:
    """The URLs for join files: a control plane's ``own``, then those that came with its credentials."""
    others = [url for url in _join_urls(folder).get("others", []) if url not in own]
    _write_join_urls(folder, own, others)
    return (*own, *others)


def _join_urls(folder: Path) -> dict[str, list[str]]:
    try:
        found: dict[str, list[str]] = json.loads((folder / _JOIN_URLS).read_bytes())
        return found
    except (OSError, ValueError):
        return {}


def _write_join_urls(folder: Path, own: Sequence[str], others: Sequence[str]) -> None:
    write_private(folder / _JOIN_URLS, json.dumps({"own": [*own], "others": [*others]}).encode())


def _take_master_key(source: Path, path: Path, text: str) -> None:
    known = _SEPARATORS.split(path.read_text()) if path.exists() else []
    if not {key for key in known if key} <= set(_SEPARATORS.split(text)):
        raise ConfigError(
            f"credentials is {str(source)!r}: {path} has a master key that they lack; export them again, or add "
            "its lines to the other control plane's file"
        )
    write_private(path, text.encode())


def _same_authority(folder: Path, found: dict[str, Any]) -> bool:
    """While an authority is replaced, one of the two may know both already."""
    path = folder / _CA_CERT
    return not path.exists() or bool(set(_PEM.findall(path.read_text())) & set(_PEM.findall(found["ca.crt"])))


def _of_directory(folder: Path, setting: str) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        found: dict[str, Any] = {
            "ca.crt": (folder / _CA_CERT).read_text(),
            "ca.key": (folder / _CA_KEY).read_text(),
            "ca": manifest["ca"],
            "admin.token": (folder / _ADMIN).read_text(),
        }
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{setting} is {str(folder)!r}: no control plane was started there ({error}); use the --dir of one"
        ) from None
    if (folder / DEFAULT_FILE).exists():
        found["master.key"] = (folder / DEFAULT_FILE).read_text()
    urls = _join_urls(folder)
    found["urls"] = [*urls.get("own", []), *urls.get("others", [])]
    return found


def _of_file(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise ConfigError(f"credentials is {str(path)!r}: {error.strerror}") from None
    # of a mounted Secret the owner is root, and a process that is not root reads it by its group
    mounted = about.st_uid == 0 != os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IRWXO)
    if stat.S_IMODE(about.st_mode) & 0o077 and not mounted:
        raise ConfigError(f"credentials is {str(path)!r}: other users can read it; run chmod 600 {path}")
    try:
        found = json.loads(content)
        if (
            found["kind"] != KIND
            or not all(isinstance(found[name], str) for name in _NEEDED)
            or "ca" not in found
            or not _is_texts(found.get("urls", []))
        ):
            raise ValueError("not an export of credentials")
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"credentials is {str(path)!r}: not a file from `shoal control credentials export`; export them again"
        ) from None
    return dict(found)


def _is_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


_NEEDED = ("ca.crt", "ca.key", "admin.token")
