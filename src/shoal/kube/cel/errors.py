"""Errors of expressions, at compile time and at evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ShoalError

_MAX_SNIPPET = 16384


class CelError(ShoalError):
    """Base class of expression errors."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One error in an expression's text, at an offset in characters."""

    offset: int
    message: str

    def show(self, source: str) -> str:
        line, column, text = _locate(source, self.offset)
        shown = f"ERROR: <input>:{line}:{column + 1}: {self.message}"
        if len(text) > _MAX_SNIPPET:
            return shown
        text = text.replace("\t", " ")
        dots = "".join("." if ord(char) < 0x80 else "\uff0e" for char in text[:column])
        mark = "\uff3e" if column < len(text) and ord(text[column]) >= 0x80 else "^"
        return f"{shown}\n | {text}\n | {dots}{mark}"


def _locate(source: str, offset: int) -> tuple[int, int, str]:
    before = source[:offset]
    line = before.count("\n")
    start = before.rfind("\n") + 1
    end = source.find("\n", offset)
    return line + 1, offset - start, source[start : end if end >= 0 else len(source)]


class CompileError(CelError):
    """The expression is malformed or ill-typed, or has the wrong type."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues: tuple[Issue, ...] = tuple(sorted(issues, key=lambda issue: issue.offset))
        super().__init__("\n".join(issue.show(source) for issue in self.issues))


class ProgramError(CompileError):
    """The expression is well-typed, but a constant part cannot be evaluated."""

    def __init__(self, reason: str) -> None:
        CelError.__init__(self, reason)
        self.issues = ()


class EvalError(CelError):
    """Evaluation failed: no such key, overflow, division by zero."""

    cost = 0  # cost until the error


class CostExceeded(EvalError):
    """The evaluation exceeded its cost budget."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Interrupted(EvalError):
    """The caller interrupted the evaluation."""

    def __init__(self) -> None:
        super().__init__("operation interrupted")
