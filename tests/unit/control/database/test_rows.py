"""Columns are read by name: every plain statement owns a NamedTuple with its columns, and no row is read by position."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import shoal.control
from shoal.control.database.rows import RowQuery
from shoal.control.database.statements import statements
from shoal.control.database.tables import Base

CONTROL = Path(shoal.control.__file__).parent
READS = {"ask", "_ask", "execute", "_rows", "rows"}


def all_queries() -> list[RowQuery[Any]]:
    """Every statement of the control plane's modules, of both dialects."""
    found = {(one.sql, one.row): one for one in _inside(statements("sqlite", notify=False), depth=3)}
    found |= {(one.sql, one.row): one for one in _inside(statements("postgresql", notify=False), depth=3)}
    for module in pkgutil.walk_packages(shoal.control.__path__, "shoal.control."):
        if ".migrations" not in module.name:
            values = vars(importlib.import_module(module.name)).values()
            found |= {(one.sql, one.row): one for value in values for one in _inside(value, depth=3)}
    assert len(found) > 30
    return list(found.values())


def _inside(value: object, *, depth: int) -> Iterator[RowQuery[Any]]:
    """The statements that a value is or holds. (``gc.get_objects`` would miss those made before a ``gc.freeze``.)"""
    if isinstance(value, RowQuery):
        yield value
    elif depth and isinstance(value, dict):
        yield from (one for each in value.values() for one in _inside(each, depth=depth - 1))
    elif depth and isinstance(value, tuple | list):
        yield from (one for each in value for one in _inside(each, depth=depth - 1))
    elif depth and is_dataclass(value) and not isinstance(value, type):
        yield from (one for each in fields(value) for one in _inside(getattr(value, each.name), depth=depth - 1))


def columns(sql: str) -> list[str]:
    """The names of what a statement selects or returns, in order."""
    begin = re.search(r"\bRETURNING\s", sql) or re.match(r"SELECT\s", sql)
    assert begin is not None, sql
    parts, depth, part = [], 0, ""
    for token in re.findall(r"[(),]|\s+|[^\s(),]+", sql[begin.end() :]):
        depth += (token == "(") - (token == ")")
        if depth == 0 and token in (",", "FROM"):
            parts.append(part.strip())
            part = ""
            if token == "FROM":
                break
        else:
            part += token
    else:
        parts.append(part.strip())
    return [re.split(r"\s+AS\s+|\.", each)[-1] for each in parts]


def test_the_columns_of_every_statement_are_the_fields_of_its_row() -> None:
    wrong = [
        f"{query.row.__name__}: {columns(query.sql)} is read as {list(query.row._fields)}"
        for query in all_queries()
        if columns(query.sql) != list(query.row._fields)
    ]
    assert not wrong, "\n".join(wrong)


def test_sqlite_answers_with_these_columns() -> None:
    with sqlite3.connect(":memory:") as database:
        for table in Base.metadata.sorted_tables:
            names = ", ".join(column.name for column in table.columns)
            unique = ", ".join(column.name for column in table.primary_key.columns)
            database.execute(f"CREATE TABLE {table.name} ({names}, PRIMARY KEY ({unique}))")
        for query in all_queries():
            if "jsonb" in query.sql or "FOR UPDATE" in query.sql:
                continue  # PostgreSQL's
            named: dict[str, Any] = dict.fromkeys(re.findall(r":(\w+)", query.sql), "[]")
            if "limit" in named:
                named["limit"] = 1
            answered = [column[0] for column in database.execute(query.sql, named).description]
            assert answered == list(query.row._fields), query.sql


def positional_reads(source: str) -> Iterator[int]:
    """Lines that take a column of a row by its place: ``row[3]``, or unpacking what a statement answered."""
    tree = ast.parse(source)
    rows: set[str] = {"row"}
    for node in ast.walk(tree):
        target, value = (
            (node.target, node.iter)
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
            else (node.targets[0], node.value)
            if isinstance(node, ast.Assign)
            else (None, None)
        )
        if value is None or not _is_answer(value):
            continue
        if isinstance(target, ast.Name) and not isinstance(node, ast.Assign):
            rows.add(target.id)
        if isinstance(target, ast.Tuple) and len(target.elts) > 1 and not isinstance(node, ast.Assign):
            yield value.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in rows:
            index = node.slice
            if isinstance(index, ast.Slice) or (isinstance(index, ast.Constant) and isinstance(index.value, int)):
                yield node.lineno


def _is_answer(value: ast.expr) -> bool:
    while True:
        if isinstance(value, ast.Await):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "all":
            value = value.func.value
        else:
            break
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in READS


def test_no_row_is_read_by_position() -> None:
    wrong = [
        f"{path.relative_to(CONTROL)}:{line}"
        for path in sorted(CONTROL.rglob("*.py"))
        if "migrations" not in path.parts
        for line in positional_reads(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "async def f(ask):\n    for one in await ask(S, {}):\n        print(one[2])\n",
        "async def f(s):\n    return {a: b for a, b in await s.execute(S)}\n",
        "async def f(s):\n    for a, b in (await s.execute(S)).all():\n        pass\n",
        "def f(row):\n    return row[4:]\n",
    ],
)
def test_this_test_sees_reads_by_position(source: str) -> None:
    assert list(positional_reads(source))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a.x, (SELECT count(*) FROM i WHERE i.k = a.k) AS n, f(a, 1) AS y FROM a", ["x", "n", "y"]),
        ("UPDATE t SET a = 1 WHERE b RETURNING t.a, t.b", ["a", "b"]),
    ],
)
def test_the_columns_of_a_statement_are_found(sql: str, expected: list[str]) -> None:
    assert columns(sql) == expected
