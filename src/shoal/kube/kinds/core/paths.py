"""Paths inside containers and volumes, and the permissions of files there."""

from __future__ import annotations

from shoal.errors import invalid
from shoal.kube.kinds.checks import Errors

_MODE_FAULT = "must be a number between 0 and 0777 (octal), both inclusive"


def has_backsteps(path: str) -> bool:
    return ".." in path and ".." in path.split("/")


def check_no_backsteps(value: str, path: str, errors: Errors) -> None:
    if has_backsteps(value):
        errors.append(invalid(path, value, "must not contain '..'"))


def check_descending(value: str, path: str, errors: Errors) -> None:
    """A relative path without ``..``."""
    if value.startswith("/"):
        errors.append(invalid(path, value, "must be a relative path"))
    check_no_backsteps(value, path, errors)


def check_local(value: str, path: str, errors: Errors) -> None:
    """As ``check_descending``; names that begin with two dots are reserved for the node agent."""
    check_descending(value, path, errors)
    if value.startswith("..") and not value.startswith("../"):
        errors.append(invalid(path, value, "must not start with '..'"))


def check_mode(mode: int | None, path: str, errors: Errors) -> None:
    if mode is not None and not 0 <= mode <= 0o777:
        errors.append(invalid(path, mode, _MODE_FAULT))
