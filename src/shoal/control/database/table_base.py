"""What the tables of the fleet have in common: their base, the types of columns, and the names of constraints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON as GenericJSON
from sqlalchemy import BigInteger, Boolean, Index, Integer, LargeBinary, MetaData, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

FLEET = "fleet"  # the workspace of objects that belong to the fleet
NAME_LENGTH = 63

JSON = GenericJSON().with_variant(JSONB(), "postgresql")
Key = String(64)
Serial = BigInteger().with_variant(Integer(), "sqlite")

_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map = {
        str: String(255),
        int: BigInteger,
        bool: Boolean,
        bytes: LargeBinary,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


def by_correlation() -> Index:
    """Most rows follow from no request and need no entry."""
    present = text("correlation <> ''")
    return Index(None, "workspace_id", "correlation", sqlite_where=present, postgresql_where=present)
