"""``python -m shoal.app.demo TAG``: serve on $HOST:$PORT until SIGTERM, then complete open requests."""

from __future__ import annotations

import sys

from shoal.app.demo.server import main

sys.exit(main(sys.argv[1:]))
