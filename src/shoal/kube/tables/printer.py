"""The table of a kind: its columns, and the function that computes the cells of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from shoal.kube.objects import Obj

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Printer:
    """The table of one kind. ``cells`` takes the object and the time in seconds since 1970."""

    columns: list[dict[str, Any]]
    cells: Callable[[Obj, float], Cells]
    conditions: Callable[[Obj], list[dict[str, str]]] | None = None  # whether the object has finished


def column(name: str, description: str, kind: str = "string", *, wide: bool = False, form: str = "") -> dict[str, Any]:
    """One column definition; ``wide`` columns are shown only by ``kubectl get -o wide``."""
    return {"name": name, "type": kind, "format": form, "description": description, "priority": int(wide)}


NAME: Final = column("Name", "Name of the object, unique for its kind in its namespace.", form="name")
AGE: Final = column("Age", "Time since the object was created.")
CREATED_AT: Final = column("Created At", "When the object was created.", "date")
CONTAINERS: Final = column("Containers", "Names of the containers in the pod template.", wide=True)
IMAGES: Final = column("Images", "Images of the containers in the pod template.", wide=True)
SELECTOR: Final = column("Selector", "Labels of the pods that belong to it.", wide=True)
