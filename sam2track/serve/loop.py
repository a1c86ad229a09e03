"""Requests wait in a queue; one thread reads them, the caller's does them one after the other and alone answers.

So answers come in the order of the requests. Only taking a request back does not wait: the reading thread
marks the request, which ends with its next frame, or does not begin.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from sam2track.errors import CancelledError, Sam2TrackError
from sam2track.serve.clips import OpenClips
from sam2track.serve.lines import Source, answer_line, error_answer, lines, read_request, request_id
from sam2track.serve.protocol import (
    Answer,
    Cancel,
    Cancelled,
    Error,
    FrameReport,
    Progress,
    Request,
    RequestId,
    Result,
    Shutdown,
)

log = logging.getLogger("sam2track")

_MAX_WAITING = 1000  # then the sender has to wait, instead of our memory growing


class Sink(Protocol):
    """Where answers go."""

    def write(self, data: bytes, /) -> int | None:
        """Takes some of it; returns how many bytes."""

    def flush(self) -> None:
        """Passes it on."""


class _SinkError(OSError):
    """Nobody hears the answers any more; not to be taken for a request that failed."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request, or what is wrong with the line, until it is answered."""

    id: RequestId | None
    request: Request | Exception
    targets: list[_Waiting] = field(default_factory=list)  # of a Cancel
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    was_cancelled: bool = False


def serve(source: Source, sink: Sink) -> None:
    """Answers requests until `shutdown` or the end of the source, where those before it are still answered.

    Args:
        source: Lines of requests; read in a thread of its own.
        sink: For the answers, a line each, and nothing else. Flushed with every line.

    Raises:
        OSError: The sink takes no more. Outputs that were being written are gone.
    """
    _Loop(source, sink).run()


class _Loop:
    def __init__(self, source: Source, sink: Sink) -> None:
        self._source = source
        self._sink = sink
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(_MAX_WAITING)
        self._unanswered: list[_Waiting] = []
        self._lock = threading.Lock()  # of the list
        self._clips = OpenClips()

    def run(self) -> None:
        # A daemon: it may be waiting for a line when everything else has ended.
        threading.Thread(target=self._read, name="sam2track serve: requests", daemon=True).start()
        try:
            while (waiting := self._queue.get()) is not None:
                self._say(self._answer(waiting))
                if isinstance(waiting.request, Shutdown):
                    break
        finally:
            self._clips.close()

    # -- in the reading thread --------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for line in lines(self._source):
                self._queue.put(self._waiting(line))
        except (OSError, ValueError) as error:  # it fails, or was closed by its owner
            log.debug("the requests end: %s", error)
        finally:
            self._queue.put(None)

    def _waiting(self, line: bytes | None) -> _Waiting:
        try:
            request = read_request(line)
        except Exception as error:  # a mistake of ours must not end the thread
            return _Waiting(request_id(line), error)
        waiting = _Waiting(request.id, request)
        with self._lock:
            if isinstance(request, Cancel):
                waiting.targets = [other for other in self._unanswered if other.id == request.target]
            self._unanswered.append(waiting)
        for other in waiting.targets:
            other.is_cancelled.set()
        return waiting

    # -- in the caller's thread -------------------------------------------------------------------------------

    def _answer(self, waiting: _Waiting) -> Answer:
        try:
            return self._result(waiting)
        except _SinkError:
            raise
        except Sam2TrackError as error:
            waiting.was_cancelled = isinstance(error, CancelledError)
            return error_answer(waiting.id, error)
        except Exception as error:  # a mistake of ours must not end an editor's work
            log.exception("a request failed unexpectedly")
            return error_answer(waiting.id, error)
        finally:
            with self._lock, suppress(ValueError):
                self._unanswered.remove(waiting)

    def _result(self, waiting: _Waiting) -> Result:
        request = waiting.request
        if isinstance(request, Exception):
            raise request
        if waiting.is_cancelled.is_set():
            raise CancelledError("cancelled before it began")
        if isinstance(request, Cancel):
            cancelled = any(other.was_cancelled for other in waiting.targets)
            return Result(id=request.id, result=Cancelled(cancelled=cancelled))

        def report(done: int, total: int, frame: FrameReport | None) -> None:
            self._say(Progress(id=request.id, done=done, total=total, frame=frame))
            if waiting.is_cancelled.is_set():
                raise CancelledError(f"cancelled after {done} of {total} frames")

        return self._clips.answer(request, report)

    def _say(self, answer: Answer) -> None:
        try:
            line = answer_line(answer)
        except ValueError as error:  # nothing that JSON can hold
            log.exception("an answer cannot be written")
            line = answer_line(Error(id=answer.id, code=type(error).__name__, message="the answer cannot be written"))
        try:
            while line:
                if (written := self._sink.write(line)) is None:
                    raise BlockingIOError(errno.EAGAIN, "it is set not to block")
                line = line[written:]
            self._sink.flush()
        except (OSError, ValueError) as error:  # gone, or closed by its owner
            raise _SinkError(*error.args) from error
