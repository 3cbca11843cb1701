"""The revisions of the tables, oldest first. A revision that was released never changes; a new one follows it."""

REVISIONS = ("0001", "0002", "0006", "0005", "0007", "0003", "0008", "0009", "0010", "0011")
HEAD = REVISIONS[-1]
