"""Errors of the REST client."""

from __future__ import annotations

from shoal.cli.rest import in_lines


def test_an_error_with_fields_has_a_line_for_each() -> None:
    details = [{"field": "spec.a", "message": "Required value"}]
    text = 'App.shoal.dev "x" is invalid: spec.a: Required value'
    assert in_lines(text, details) == 'App.shoal.dev "x" is invalid:\n  spec.a: Required value'
    assert in_lines("nobody is here", []) == "nobody is here"
