"""The function libraries of the Kubernetes environment.

Besides those of a Kubernetes server there are three small ones that it lacks: ``math.greatest``/``math.least``,
``base64`` and ``reverse`` on strings.
"""

from __future__ import annotations

from functools import lru_cache

from shoal.kube.cel.functions import Library
from shoal.kube.cel.library import (
    authorization,
    conversions,
    lists,
    network,
    operators,
    patches,
    quantities,
    strings,
    times,
    versions,
)


@lru_cache(maxsize=1)
def standard() -> Library:
    """Every function, declared once per process."""
    library = Library()
    for part in (operators, conversions, strings, times, lists, network, quantities, versions, authorization):
        part.declare(library)
    return library


@lru_cache(maxsize=1)
def patching() -> Library:
    """The additional functions of mutating policies."""
    library = Library()
    library.functions.update(standard().functions)
    patches.declare(library)
    return library
