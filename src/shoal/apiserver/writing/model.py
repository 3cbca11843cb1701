"""One write: the new object, the entry it replaces, its author, and the results of the steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shoal.apiserver import objects
from shoal.apiserver.admission.passes import AdmissionPass
from shoal.apiserver.body import WriteOptions
from shoal.apiserver.context import Call
from shoal.apiserver.effects import NO_EFFECTS, NOTHING, Effects, Extra
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape, ShapeKey
from shoal.kube.objects import Obj
from shoal.store import Entry

OWN_OPTIONS = WriteOptions(False, "", "Ignore")  # of the server's own writes


@dataclass(frozen=True, slots=True)
class Author:
    """The field manager of a write, and its subresource."""

    manager: str
    subresource: str = ""


@lru_cache(maxsize=1024)
def author_of(manager: str, subresource: str = "") -> Author:
    """The author of that name, cached: there are few, and every write has one."""
    return Author(manager, subresource)


class Retry(Exception):
    """The stored state changed during the write; retry from the current state."""


class Write:
    """One object that is created, or that replaces ``entry``. The steps change ``new`` in place
    or put another object there. A write is used once: after ``Retry`` the verb makes another one."""

    __slots__ = (
        "admission", "author", "call", "effects", "entry", "extra", "given_revision", "new", "new_shape", "old",
        "options", "owned", "prefix", "restored", "served", "shape", "spec", "storage", "trusted",
    )  # fmt: skip

    def __init__(
        self, served: Served, new: Obj, entry: Entry | None, call: Call | None, options: WriteOptions, author: Author,
        *, given_revision: str = "", owned: bool = False, trusted: bool = False, shape: Shape | None = None,
        new_shape: ShapeKey | None = None,
    ) -> None:  # fmt: skip
        self.served = served  # the version of the client's request
        self.storage = served  # the version that is stored; from the first step on ``new`` and ``old`` are in it
        self.new = new
        self.entry = entry
        self.old = None if entry is None else objects.decode(entry)  # never changed
        self.call = call  # None for the server's own writes: they pass neither guards nor admission
        self.options = options
        self.author = author
        self.given_revision = given_revision  # the client's precondition; "": any
        self.owned = owned  # apply has already computed the field owners
        self.trusted = trusted  # may set values that clients may not (an endpoint on the loopback address)
        self.shape = shape  # cached results for the spec
        self.new_shape = new_shape  # otherwise: the key to cache them
        self.prefix = ""  # generateName, when the name was made from it
        self.admission: AdmissionPass | None = None
        self.spec = b""  # as it was before the kind prepared it
        self.effects: Effects = NO_EFFECTS
        self.extra: Extra = NOTHING  # additions of the effects to the transaction
        self.restored = b""  # the object before its effects changed it, for another attempt

    @classmethod
    def own(cls, served: Served, new: Obj, entry: Entry | None, author: Author, *, trusted: bool = False) -> Write:
        """A write of the server itself."""
        return cls(served, new, entry, None, OWN_OPTIONS, author, trusted=trusted)

    def shown(self) -> Obj:
        """``new`` in the version of the client's request."""
        return self.new if self.served.from_storage is None else self.served.from_storage(self.new)
