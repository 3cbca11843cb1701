"""The frame of the ``shoal`` command: catalog of commands, dispatch, output formats."""
