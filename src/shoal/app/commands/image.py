"""``shoal image``: loads, lists and removes the images of a cluster whose pods run in sandboxes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.app.home import directory
from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.options import Output
from shoal.cli.printers import Format, duration, put_rows
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.node.runtime.images.index import KeptImage
    from shoal.node.runtime.images.store import ImageStore

app = new_app("Load, list and remove the images of a cluster whose pods run in sandboxes.", group=True)

_Dir = Annotated[
    Path | None,
    typer.Option(help="directory of a cluster, or a state directory with one; default $SHOAL_HOME, else ~/.shoal"),
]
_COLUMNS = ("image", "id", "size", "used")
_UNITS = ("B", "KiB", "MiB", "GiB")


@app.command("load")
def load(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="archive of `docker save`, or an OCI layout (a folder or a tar)")
    ],
    name: Annotated[str, typer.Option(help="call it that, whatever the archive says: shop/web:1")] = "",
    dir: _Dir = None,
) -> None:
    """Load images from an archive, so that pods need no registry."""
    from shoal.app.sandboxes import image_adder

    if not file.exists():
        raise ConfigError(f"{file} does not exist")
    store = _store(dir)
    for image in asyncio.run(image_adder(store, clock=RealClock()).load(file, name)):
        typer.echo(f"loaded {', '.join(image.names)} ({_short(image)}, {_amount(image.size_bytes)})")
        if count := image.lost_capabilities:
            files = "file has" if count == 1 else "files have"
            typer.echo(f"note: {count} {files} capabilities of their own (setcap), which are not kept", err=True)


@app.command("list")
def listed(dir: _Dir = None, output: Output = Format.TABLE) -> None:
    """List the images that are unpacked."""
    store, now = _store(dir), RealClock().wall_s()
    found = sorted(store.index.images().values(), key=lambda each: each.names or ("~",))
    values = [_value(store, each) for each in found]

    def rows() -> list[dict[str, Any]]:
        return [
            {
                "image": name, "id": _short(each), "size": _amount(each.size_bytes),
                "used": duration(max(0.0, now - store.index.used_at(each))),
            }
            for each in found
            for name in _tags(each)
        ]  # fmt: skip

    put_rows(values, _COLUMNS, output, rows=rows, empty="no images", name=lambda each: str(each["id"]))


@app.command("prune")
def prune(
    all: Annotated[
        bool, typer.Option("--all", help="every image that no container uses, not only what is over the budget")
    ] = False,
    dir: _Dir = None,
) -> None:
    """Remove images that no container uses until the rest fits into the budget, the least recently used first."""
    store = _store(dir)
    removed = asyncio.run(store.collect(budget_bytes=0, keep_s=0) if all else store.collect())
    for each in removed:
        typer.echo(f"removed {', '.join(_tags(each))} ({_short(each)})")
    if not removed:
        typer.echo("nothing to remove")


def _store(dir: Path | None) -> ImageStore:
    from shoal.app.sandboxes import image_store

    return image_store(_cluster(directory(dir)), clock=RealClock())


def _cluster(state: Path) -> Path:
    """The cluster's directory that is meant."""
    inside = sorted(each for each in state.glob("clusters/*") if each.is_dir())
    if not inside:
        if not state.is_dir():
            raise ConfigError(f"{state} does not exist: give the directory of a cluster with --dir")
        return state
    if len(inside) > 1:
        names = ", ".join(f"--dir {each}" for each in inside)
        raise ConfigError(f"{state} has {len(inside)} clusters: choose one with {names}")
    return inside[0]


def _value(store: ImageStore, image: KeptImage) -> dict[str, Any]:
    return {
        "id": image.id, "names": list(image.names), "size_bytes": image.size_bytes, "layers": len(image.layers),
        "used_at": store.index.used_at(image),
    }  # fmt: skip


def _tags(image: KeptImage) -> list[str]:
    """The names without those by digest, unless there is no other."""
    return [each for each in image.names if "@" not in each] or list(image.names[:1]) or ["<none>"]


def _short(image: KeptImage) -> str:
    return image.id.removeprefix("sha256:")[:12]


def _amount(size_bytes: int) -> str:
    size, unit = float(size_bytes), _UNITS[0]
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
