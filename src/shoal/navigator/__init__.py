"""The navigator: what runs in every cluster, in one live view that can be asked."""
