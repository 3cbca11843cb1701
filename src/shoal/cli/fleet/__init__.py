"""Commands that talk to a control plane: one typer application per first word, over ``shoal.cli.rest``."""
