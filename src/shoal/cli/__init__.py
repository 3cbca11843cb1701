"""The shape of the ``shoal`` command: its catalog, how a command is found and run, how results are printed."""
