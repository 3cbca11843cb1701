"""How long the command line takes from the shell to the prompt.

    PYTHONPATH=src python bench/cli_bench.py

Commands ask a server of this process that answers at once, so that its time does not count. Each figure is the best of
ten runs, as a time and as a multiple of an interpreter that does nothing. Fails when a bar is not held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELP_BAR_S, COMMAND_BAR_S = 0.06, 0.2
RUNS = 10
APP = {
    "apiVersion": "shoal.dev/v1", "kind": "App", "spec": {"image": "web:1", "topology": [{"region": "eu"}]},
    "metadata": {"name": "web", "project": "shop", "environment": "live", "createdAt": "2027-01-31T12:00:00+00:00"},
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"items": [APP] * 50, "apps": [], "agents": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def best_s(command: Sequence[str], environment: dict[str, str]) -> float:
    found = []
    for _ in range(RUNS):
        before = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        found.append(time.monotonic() - before)
    return min(found)


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        environment = {**os.environ, "SHOAL_HOME": home, "SHOAL_URL": url, "SHOAL_TOKEN": "x"}
        bare_s = best_s([sys.executable, "-c", "pass"], environment)
        print(f"{'python -c pass':<24} {bare_s * 1000:5.0f} ms")
        good = True
        for words, bar_s in (
            (("--help",), HELP_BAR_S),
            (("get", "apps"), COMMAND_BAR_S),
            (("get", "apps", "-o", "json"), COMMAND_BAR_S),
            (("status",), COMMAND_BAR_S),
            (("rollout", "--help"), COMMAND_BAR_S),
        ):
            took_s = best_s([sys.executable, "-m", "shoal", *words], environment)
            name, good = f"shoal {' '.join(words)}", good and took_s < bar_s
            print(f"{name:<24} {took_s * 1000:5.0f} ms, {took_s / bare_s:4.1f} times (bar: {bar_s * 1000:.0f} ms)")
    server.shutdown()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
