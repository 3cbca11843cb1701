"""The query language: ``pods where image ~ 'v2' and region = 'eu' and not ready``.

    KIND [where EXPR] [select FIELD, ... | count [by FIELD, ...]] [order by FIELD [desc], ...] [limit N]

Text becomes tokens (``lexer``), a checked query (``parser``), a way to the rows (``plan``), and one Python function
(``compiled``). All of it is pure; ``run`` puts it together over a view.
"""
