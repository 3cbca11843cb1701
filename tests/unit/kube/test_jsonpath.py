"""JSONPath as CRDs use it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube import jsonpath

OBJECT = {
    "spec": {"replicas": 3, "zero": 0, "none": None},
    "status": {"conditions": [{"type": "Ready", "status": "True", "n": 2}, {"type": "Other", "status": "False", "n": 5, "ok": True}]},
    "a": {"b.c": 1, "it's": 2, "l": [1, 2, 3], "deep": [[1], [2, 3]]},
    "metadata": {"labels": {"app.io/x": "v", "dash-ed": "d"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]), (".spec.zero", [0]), (".spec.none", [None]), (".spec.missing", []), (".spec.replicas.x", []),
        ("{.spec.replicas}", [3]), ("$.spec.replicas", [3]), ("spec.replicas", [3]), (" .spec.replicas ", [3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        (".status.conditions[?( @.type == 'Ready' )].status", ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        (".status.conditions[?(@.n>2)].type", ["Other"]), (".status.conditions[?(@.n<=2)].type", ["Ready"]),
        (".status.conditions[?(@.ok==true)].type", ["Other"]), (".status.conditions[?(@.ok)].type", ["Other"]),
        (".status.conditions[?(@.n=='2')].type", []), (".status.conditions[?(@['type']=='Ready')].n", [2]),
        (".spec[?(@.x==1)]", []), (".a.l[?(@>1)]", [2, 3]),
        (".a['b.c']", [1]), ('.a["b.c"]', [1]), (".a['it\\'s']", [2]), (".a.['b.c']", [1]), ("['a']['b.c']", [1]),
        (".a.l[0]", [1]), (".a.l[-1]", [3]), (".a.l[9]", []), (".a.l[-9]", []), (".a.l[*]", [1, 2, 3]), (".spec[0]", []),
        (".a.deep[*][0]", [1, 2]), (".a.deep[1][1]", [3]), (".spec.*", [3, 0, None]), (".status.conditions[*].type", ["Ready", "Other"]),
        (".metadata.labels.app\\.io/x", ["v"]), (".metadata.labels.dash-ed", ["d"]),
    ],
)  # fmt: skip
def test_paths_find(path: str, found: list[Any]) -> None:
    assert jsonpath.compile(path)(OBJECT) == found


@pytest.mark.parametrize(
    "path",
    ["", ".", "..a", ".a..b", ".a[", ".a[x]", ".a[?(@.b==c)]", ".a]", ".a b", ".a[0", ".a['b]", "{.a", ".a[?(@.type==)]",
     ".a[?(@.b==\"x\"]", ".a[]", ".a{", "." + "a" * 2000],
)  # fmt: skip
def test_paths_that_cannot_be_read_are_value_errors(path: str) -> None:
    with pytest.raises(ValueError):
        jsonpath.compile(path)


def test_names_of_simple_paths() -> None:
    assert jsonpath.names(".spec.replicas") == ("spec", "replicas")
    assert jsonpath.names(".a.b\\.c") == ("a", "b.c")
    for path in ("spec.replicas", ".a[0]", ".a.", ".", ".a['b']", ""):
        assert jsonpath.names(path) is None


def test_hostile_paths_are_refused_quickly() -> None:
    started = time.perf_counter()
    for path in (".a[?(@" + " " * 1000, ".a[?(@" + "[0]" * 300, ".a[?(@.b==" + "x)" * 450, "[" * 1000):
        with pytest.raises(ValueError):
            jsonpath.compile(path)
    assert time.perf_counter() - started < 2.0


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet=".a[]0*?(@)='\"<!{}$\\ ", max_size=20))
def test_any_text_compiles_or_is_a_value_error(path: str) -> None:
    try:
        find = jsonpath.compile(path)
    except ValueError:
        return
    assert isinstance(find(OBJECT), list)
    assert isinstance(find([{"a": 1}]), list)
