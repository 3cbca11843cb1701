"""Regular expressions as in Kubernetes: RE2, unanchored, linear time.

Python's ``re`` backtracks and interprets ``$`` and classes differently, so RE2 itself does the matching. Compiled
patterns are kept in bounded caches; an invalid pattern raises ``ValueError`` with the wording of Go's parser.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped,unused-ignore]

Matcher = Callable[[str], bool]

_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def _options(*, captures: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = not captures
    return options


def _go_error(error: Exception) -> ValueError:
    raw = error.args[0] if error.args else "unexpected error"
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    kind, colon, part = text.partition(": ")
    return ValueError(f"error parsing regexp: {_GO_WORDS.get(kind, kind)}{colon}" + (f"`{part}`" if colon else ""))


@lru_cache(maxsize=2048)
def compile_regex(pattern: str) -> Any:
    """The compiled expression with its groups, for finding."""
    try:
        return re2.compile(pattern, _options(captures=True))
    except re2.error as error:
        raise _go_error(error) from None
    except UnicodeEncodeError:
        raise ValueError(f"error parsing regexp: invalid UTF-8: `{pattern!r}`") from None


@lru_cache(maxsize=2048)
def matcher(pattern: str) -> Matcher:
    """A test whether a text has a match anywhere."""
    compile_regex(pattern)  # for the error text: a set only reports that it failed
    search = re2.Set.SearchSet(_options(captures=False))
    search.Add(pattern)
    search.Compile()
    match = search.Match

    def matches(text: str) -> bool:
        return match(text) is not None

    return matches
