"""The revisions of the tables, oldest first. A revision that was released never changes; a new one follows it.

A program also starts on tables that a later one has changed, if its newest revision is ``OLDEST`` or later: whoever
changes the tables writes that into the database. So a revision adds tables, and columns that may be empty or have a
default in the database. One that takes away or renames what programs of the release before use sets ``OLDEST`` to
itself, and the release notes say that these programs cannot start again.
"""

REVISIONS = (
    "0001", "0002", "0006", "0005", "0007", "0003", "0008", "0009", "0010", "0011", "0012", "0016", "0018", "0017",
)  # fmt: skip
HEAD = REVISIONS[-1]
OLDEST = "0012"
