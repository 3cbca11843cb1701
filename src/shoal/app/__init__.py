"""The processes of Shoal: settings are parsed and object graphs are built here, and nowhere else."""
