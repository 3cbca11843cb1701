"""The query language: ``pods where image ~ 'v2' and region = 'eu' and not ready``.

    KIND [where EXPR] [select FIELD, ... | count [by FIELD, ...]] [order by FIELD [desc], ...] [limit N]

Text becomes tokens (``lexer``), a checked query (``parser``), a choice of indexes (``plan``), and one Python function
(``compiled``). All of these are pure; ``run`` combines them over a view.
"""
