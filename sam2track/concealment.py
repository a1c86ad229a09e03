"""Damage of which FFmpeg says nothing but in its log: noticed within `noticing()`.

Damaged macroblocks of H.264 are patched up without an error or a mark on the frame, and a Matroska file that was
cut off ends as if it were whole. FFmpeg's log tells both. PyAV's log is one for the whole process, and off by
default, so a library leaves it alone: a program that owns its process (the command line does) turns it on here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

# Nothing but damage writes these: the first line is of H.264, the second of Matroska. Other errors in the log, such as
# references that are missing at a start, are no damage to what is shown.
_DAMAGE = re.compile(
    r"error while decoding MB|Error splitting the input into NAL units|Invalid NAL unit size"
    r"|File ended prematurely|exceeds containing master element|invalid as first byte of an EBML number"
)


@contextmanager
def noticing() -> Iterator[None]:
    """Let readers of files in this process notice such damage. Changes PyAV's log level until the end of the block."""
    import av.logging

    before = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(max(before[0] or 0, av.logging.ERROR))
    av.logging.set_skip_repeated(False)  # or a second reading would be told nothing
    logger, silent = logging.getLogger("libav"), logging.NullHandler()
    propagated, logger.propagate = logger.propagate, before[0] is not None  # nobody asked to see the log
    logger.addHandler(silent)
    try:
        yield
    finally:
        logger.removeHandler(silent)
        logger.propagate = propagated
        av.logging.set_level(before[0])
        av.logging.set_skip_repeated(before[1])


def is_noticing() -> bool:
    """Whether FFmpeg's log can be read now."""
    import av.logging

    level = av.logging.get_level()
    return level is not None and level >= av.logging.ERROR


class Concealment:
    """What FFmpeg's log says of damage while the block runs, in this thread.

    Attributes:
        found: The first message about damage, or None; after the block.
    """

    found: str | None = None

    def __enter__(self) -> Concealment:
        import av.logging

        self._capture = av.logging.Capture() if is_noticing() else None
        self._log = [] if self._capture is None else self._capture.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._capture is not None:
            self._capture.__exit__(None, None, None)
        self.found = next((text.strip() for _, _, text in self._log if _DAMAGE.search(text)), None)
