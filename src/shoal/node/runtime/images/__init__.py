"""Images with files, for runtimes that have no engine: fetched or loaded, unpacked, kept, given to sandboxes.

    archive or registry ─▶ manifests (checked) ─▶ layers (unpacked once each, by a process) ─▶ index ─▶ sandbox

``store`` is the only part that writes to the folder of images; several nodes and commands use it at the same time.
"""
