"""Errors of expressions: those found when one is written, and those met when one is evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ShoalError

_MAX_SNIPPET = 16384


class CelError(ShoalError):
    """Base of what can be wrong with an expression."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of an expression's text, at an offset in characters."""

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
    """The expression is no expression, or not one of the types it must have."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues: tuple[Issue, ...] = tuple(sorted(issues, key=lambda issue: issue.offset))
        super().__init__("\n".join(issue.show(source) for issue in self.issues))


class ProgramError(CompileError):
    """The expression is well-typed, but a part of it that is constant has no value."""

    def __init__(self, reason: str) -> None:
        CelError.__init__(self, reason)
        self.issues = ()


class EvalError(CelError):
    """Evaluation came to no value: no such key, overflow, division by zero."""

    cost = 0  # what the evaluation had cost by then


class CostExceeded(EvalError):
    """The evaluation cost more than it may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Interrupted(EvalError):
    """The evaluation took longer than the caller wants to wait."""

    def __init__(self) -> None:
        super().__init__("operation interrupted")
