"""Large answers compressed for clients that accept gzip, by the rules of Kubernetes: above 128 KB, level 1. Clients on
this machine get them as they are: there is no network to save.

A thread compresses, so that the event loop serves others meanwhile. The last few bodies are kept: after a restart many
clients ask for the same list.
"""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor

from shoal.apiserver.messages import LongResponse, Request, RequestTimedOut, Response

LARGE_BYTES = 128 * 1024
_LEVEL = 1
_GZIP = 31  # zlib's number for its largest window with gzip's header
_THREADS = 2
_KEPT_BYTES = 16 << 20  # of bodies before compression
_LOOPBACK = ("127.", "::1:", "::ffff:127.")  # beginnings of a client's address
_HEADERS = ((b"Content-Encoding", b"gzip"), (b"Vary", b"Accept-Encoding"))

_Key = tuple[bytes, str, bytes]  # path, query and Accept of a request
_Kept = tuple[bytes, asyncio.Future[bytes]]  # a body, and what becomes of it


def accepts_gzip(request: Request) -> bool:
    """Whether the client names gzip, without a weight: as Kubernetes reads it."""
    header = request.headers.get(b"accept-encoding")
    return header is not None and any(token.strip() == b"gzip" for token in header.split(b","))


class Compression:
    """Compresses answers of one server."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "gzip")  # they start when there is work
        self._kept: dict[_Key, _Kept] = {}  # the newest last

    def close(self) -> None:
        self._kept.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def compressed(self, request: Request, answer: Response) -> Response:
        """The answer as this client gets it. Call it for large answers only."""
        body = answer.body
        if request.client.startswith(_LOOPBACK):
            return answer
        if not isinstance(body, bytes) or answer.status >= 300 or not accepts_gzip(request) or _is_encoded(answer):
            return answer
        try:
            packed = await asyncio.shield(self._packed(request, body + answer.end if answer.end else body))
        except (RequestTimedOut, asyncio.CancelledError):  # slow threads, or a server that stops
            return answer
        except BaseException:  # the client is gone
            if isinstance(answer, LongResponse):
                answer.on_sent()
            raise
        headers = (*answer.headers, *_HEADERS)
        if isinstance(answer, LongResponse):
            answer.body, answer.headers = packed, headers
            return answer
        made = Response(answer.status, packed, answer.content_type, headers)
        made.head = answer.head
        return made

    def _packed(self, request: Request, body: bytes) -> asyncio.Future[bytes]:
        """The compressed body; the same one for all who ask for it at once or again."""
        key = (request.raw_path, request.query, request.headers.get(b"accept", b""))
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != body:  # lists differ early, in their revision
            kept = (body, asyncio.get_running_loop().run_in_executor(self._threads, _gzip, body))
        if len(body) <= _KEPT_BYTES:
            self._kept[key] = kept
            while sum(len(other) for other, _ in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return kept[1]


def _is_encoded(answer: Response) -> bool:
    return any(name.lower() == b"content-encoding" for name, _ in answer.headers)


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL, _GZIP)
