"""``python -m shoal`` is the ``shoal`` command."""

from __future__ import annotations

from shoal.app.main import main

raise SystemExit(main())
