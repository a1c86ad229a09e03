"""Frames are decoded beside inference: a thread reads on while the consumer is busy, a few items and no more.

What the consumer sees is the iterator itself: the same items in the same order, and an error in its place, after
the items before it. The thread ends with the iterator, however that ends: exhausted, failed, closed, dropped, or by
Ctrl-C, which reaches the consumer only.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

_T = TypeVar("_T")

_AHEAD = 2  # items; a third one is being made. More gain nothing, and an 8K frame has 100 MB
_POLL_S = 0.1


def read_ahead(
    items: Iterable[_T],
    ahead: int = _AHEAD,
    *,
    ended: threading.Event | None = None,
    patience_s: float | None = None,
) -> Generator[_T, None, None]:
    """Yields the items, which a thread makes up to `ahead` + 1 of beforehand. **Lazy: it starts with the first one.**

    Args:
        items: Iterated, and closed if it can be, in the thread.
        ahead: How many may wait, at least 1.
        ended: Set it, from a signal's handler for instance, and the items end, also while one is waited for.
        patience_s: How long the end waits for the thread; then it is left alone, waiting for a live source that
            says nothing. None waits until it has ended.

    Raises:
        BaseException: What the iterator raises, once the items before it are consumed.
    """
    reader = _Reader(iter(items), ahead)
    try:
        reader.start()
        while (made := _next(reader.made, ended)) is not None:
            yield made[0]
            reader.room.put(None)
        if reader.error is not None:
            raise reader.error
    finally:
        reader.end(patience_s)


def _next(made: queue.SimpleQueue[tuple[_T] | None], ended: threading.Event | None) -> tuple[_T] | None:
    if ended is None:
        return made.get()
    while not ended.is_set():
        with suppress(queue.Empty):
            return made.get(timeout=_POLL_S)
    return None


class _Reader(threading.Thread, Generic[_T]):
    """Fills a queue with 1-tuples of items; None is the end.

    Both queues are simple ones. A signal's exception may come out of any line of the consumer, and out of the lock
    within `queue.Queue` it would leave that locked for ever.
    """

    def __init__(self, items: Iterator[_T], ahead: int) -> None:
        # A daemon, for an iterator that is still held when the interpreter ends: nobody would end the thread then.
        super().__init__(name="sam2track-read-ahead", daemon=True)
        self.made: queue.SimpleQueue[tuple[_T] | None] = queue.SimpleQueue()
        self.room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each item that may be made
        for _ in range(ahead + 1):
            self.room.put(None)
        self.error: BaseException | None = None
        self._items = items
        self._is_ended = False

    def run(self) -> None:
        """Read until the end, an error, or `end`."""
        try:
            while True:
                self.room.get()
                if self._is_ended:
                    break
                try:
                    item = next(self._items)
                except StopIteration:
                    break
                self.made.put((item,))
        except BaseException as error:
            self.error = error
        finally:
            self._close_items()
            self.made.put(None)

    def end(self, patience_s: float | None) -> None:
        """Stop reading, and return when the thread has ended, or after so many seconds."""
        self._is_ended = True
        self.room.put(None)
        limit = None if patience_s is None else time.monotonic() + patience_s
        while self.is_alive() and (limit is None or time.monotonic() < limit):
            self.join(0.01)

    def _close_items(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            try:
                close()
            except BaseException as error:
                self.error = self.error or error
