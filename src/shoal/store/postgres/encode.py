"""A batch of transactions as the parameters of ``commit_batch``: one array per column, split into rounds.

Decides what needs no database: a transaction that cannot succeed is left out, and for an object that a transaction
changes several times (put, deleted, put again) the columns say where its current life began, so that the database
looks only at the state before the transaction. ``shoal.store.postgres.schema`` explains the columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.store.journal import Transaction, check_key
from shoal.store.model import Absent, At, Exists, Fence, Key, Op, Put, Require
from shoal.store.postgres import schema

_MAX_REVISION = 2**63 - 1


class Encoded:
    """The columns, extended with every transaction."""

    __slots__ = ("_written", "op_ends", "ops", "rq_ends", "rqs")

    def __init__(self) -> None:
        # tx, resource, namespace, name, hole, fence, back, last, value
        self.ops: tuple[list[object], ...] = ([], [], [], [], [], [], [], [], [])
        # tx, kind, resource, namespace, name, revision, fence
        self.rqs: tuple[list[object], ...] = ([], [], [], [], [], [], [])
        self.op_ends: list[int] = []
        self.rq_ends: list[int] = []
        self._written: set[Key] = set()

    def add(self, tx: int, transaction: Transaction) -> None:
        ops, requires = transaction.ops, transaction.requires
        written = self._written
        keys = [op.key for op in ops]
        if written and not (written.isdisjoint(keys) and written.isdisjoint([r.key for r in requires])):
            self.op_ends.append(len(self.ops[0]))
            self.rq_ends.append(len(self.rqs[0]))
            written.clear()
        written.update(keys)
        for require in requires:
            if _storable(require.key):  # a key that cannot exist is absent; ``hopeless`` has refused the other kinds
                self._require(tx, require)
        if len(ops) == 1:
            op = ops[0]
            self._op(tx, op, 0, True)
            if type(op) is not Put:
                self._require(tx, Exists(op.key))
        else:
            self._chain(tx, ops)

    def _chain(self, tx: int, ops: Sequence[Op]) -> None:
        last = {op.key: number for number, op in enumerate(ops)}
        began: dict[Key, int] = {}  # first put of the object's current life
        renewed: set[Key] = set()  # deleted earlier in this transaction
        for number, op in enumerate(ops):
            key = op.key
            if key not in began:
                began[key] = number
                if type(op) is not Put and key not in renewed:
                    self._require(tx, Exists(key))
            back = number - began[key]
            self._op(tx, op, -1 - back if key in renewed else back, last[key] == number)
            if type(op) is not Put:
                renewed.add(key)
                del began[key]

    def _op(self, tx: int, op: Op, back: int, last: bool) -> None:
        key = op.key
        column = self.ops
        column[0].append(tx)
        column[1].append(key[0])
        column[2].append(key[1])
        column[3].append(key[2])
        if type(op) is Put:
            fence = op.attrs.fence
            column[4].append(op.hole)
            column[5].append(fence.encode("utf-8", "surrogatepass") if fence else b"")
            column[8].append(op.value)
        else:
            column[4].append(0)
            column[5].append(b"")
            column[8].append(None)
        column[6].append(back)
        column[7].append(last)

    def _require(self, tx: int, require: Require) -> None:
        key = require.key
        kind, revision, fence = schema.EXISTS, 0, b""
        if type(require) is At:
            kind, revision = schema.AT, require.revision
        elif type(require) is Absent:
            kind = schema.ABSENT
        elif type(require) is Fence:
            kind, fence = schema.FENCE, require.fence.encode("utf-8", "surrogatepass")
        column = self.rqs
        column[0].append(tx)
        column[1].append(kind)
        column[2].append(key[0])
        column[3].append(key[1])
        column[4].append(key[2])
        column[5].append(revision)
        column[6].append(fence)


def encode(batch: Sequence[Transaction]) -> Encoded:
    encoded = Encoded()
    for tx, transaction in enumerate(batch):
        if not hopeless(transaction):
            encoded.add(tx, transaction)
    return encoded


def hopeless(transaction: Transaction) -> bool:
    """Whether the transaction fails for every state of the database; ``decide`` then refuses it with the reason."""
    for require in transaction.requires:
        if type(require) is At and not 0 < require.revision <= _MAX_REVISION:
            return True
        if type(require) is not Absent and not _storable(require.key):
            return True
    ops = transaction.ops
    if len(ops) == 1:
        return not _storable(ops[0].key)
    absent: set[Key] = set()
    for op in ops:
        key = op.key
        if not _storable(key) or (type(op) is not Put and key in absent):
            return True
        if type(op) is Put:
            absent.discard(key)
        else:
            absent.add(key)
    return False


def _storable(key: Key) -> bool:
    try:
        check_key(key)
    except ValueError:  # an unpaired surrogate raises this too
        return False
    return True
