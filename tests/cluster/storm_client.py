"""Many clients that never wait: a program that sends requests as fast as its connections take them.

    python storm_client.py URL CA_FILE TOKEN CLIENTS PIPELINE SECONDS

It ends after SECONDS, or before when its standard input ends. Each client keeps up to PIPELINE requests on its way, creates and lists in turn, and ignores the answers.
Prints a JSON object: how often each status came, how many refusals said when to come back, how many connections broke.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

NAMESPACE = "storm"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
LIST_EVERY = 4


class Storm:
    def __init__(self, url: str, ca_file: str, token: str, pipeline: int, until: float) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 443
        self.context = ssl.create_default_context(cafile=ca_file)
        self.auth = b"Host: x\r\nAuthorization: Bearer " + token.encode() + b"\r\n"
        self.pipeline = pipeline
        self.until = until
        self.counts: Counter[str] = Counter()

    def end_with_input(self) -> None:
        while os.read(0, 4096):
            pass
        self.until = 0.0

    def request(self, client: int, number: int) -> bytes:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps".encode()
        if number % LIST_EVERY == 0:
            return b"GET " + path + b" HTTP/1.1\r\n" + self.auth + b"\r\n"
        body = b'{"metadata":{"name":"c-%d-%d"},"data":{"k":"%b"}}' % (client, number, b"v" * 200)
        head = b"POST " + path + b" HTTP/1.1\r\n" + self.auth + b"Content-Type: application/json\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def client(self, client: int) -> None:
        number = 0
        while time.monotonic() < self.until:
            try:
                number = await self.connection(client, number)
            except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
                self.counts["broken"] += 1

    async def connection(self, client: int, number: int) -> int:
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.context, limit=1 << 20)
        outstanding, rest = 0, b""
        try:
            while (left := self.until - time.monotonic()) > 0:
                burst = []
                while outstanding < self.pipeline:
                    burst.append(self.request(client, number))
                    number += 1
                    outstanding += 1
                if burst:
                    writer.write(b"".join(burst))
                try:
                    async with asyncio.timeout(min(left, 0.5)):
                        data = await reader.read(1 << 18)
                except TimeoutError:
                    continue
                if not data:
                    raise ConnectionResetError
                data = rest + data
                found = STATUS.findall(data)
                outstanding -= len(found)
                self.counts.update(status.decode() for status in found)
                self.counts["retry-after"] += data.count(b"\r\nRetry-After: 1\r\n")
                rest = data[-12:] if not STATUS.search(data[-12:]) else b""
        finally:
            writer.transport.abort()
        return number


async def main(url: str, ca_file: str, token: str, clients: int, pipeline: int, seconds: float) -> None:
    storm = Storm(url, ca_file, token, pipeline, time.monotonic() + seconds)
    threading.Thread(target=storm.end_with_input, daemon=True).start()
    await asyncio.gather(*(storm.client(number) for number in range(clients)))
    print(json.dumps(storm.counts))


if __name__ == "__main__":
    import uvloop

    url, ca_file, token, clients, pipeline, seconds = sys.argv[1:]
    uvloop.run(main(url, ca_file, token, int(clients), int(pipeline), float(seconds)))
