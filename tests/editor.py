"""An editor's side of `sam2track serve`, in this process or with a child process."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sam2track.prompt_file import PNG_DATA
from sam2track.serve import serve
from sam2track.serve.protocol import ANSWER

SERVE = [sys.executable, "-m", "sam2track", "serve"]
Json = dict[str, Any]


class Editor:
    """Asks and listens on two pipes. Every answer is checked against the protocol's own model."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers
        self._last_id = 0

    def send(self, command: str, **fields: Any) -> int:
        """Returns the id."""
        self._last_id += 1
        self.send_line(json.dumps({"id": self._last_id, "command": command, **fields}).encode())
        return self._last_id

    def send_line(self, line: bytes) -> None:
        self._requests.write(line + b"\n")
        self._requests.flush()

    def hear(self) -> Json:
        """The next line."""
        line = self._answers.readline()
        assert line.endswith(b"\n"), f"no answer, but {line!r}"
        ANSWER.validate_json(line)
        answer: Json = json.loads(line)
        return answer

    def answer(self, request_id: int) -> tuple[list[Json], Json]:
        """Progress, and the answer."""
        progress = []
        while (answer := self.hear())["type"] == "progress":
            assert answer["id"] == request_id
            progress.append(answer)
        assert answer["id"] == request_id
        return progress, answer

    def ask(self, command: str, **fields: Any) -> Any:
        """The result."""
        _, answer = self.answer(self.send(command, **fields))
        assert answer["type"] == "result", answer
        return answer["result"]

    def error(self, command: str, **fields: Any) -> Json:
        _, answer = self.answer(self.send(command, **fields))
        assert answer["type"] == "error", answer
        return answer

    def end(self) -> None:
        """The end of the requests."""
        self._requests.close()

    def deafen(self) -> None:
        """Nobody reads the answers any more."""
        self._answers.close()


@contextmanager
def editing() -> Iterator[Editor]:
    """An editor whose process is a thread of this one."""
    to_serve, requests = os.pipe()
    answers, from_serve = os.pipe()
    source, sink = os.fdopen(to_serve, "rb", 0), os.fdopen(from_serve, "wb", 0)
    one = Editor(os.fdopen(requests, "wb"), os.fdopen(answers, "rb"))

    def run() -> None:
        with sink:  # closed with it, so that the editor does not wait for answers that will not come
            serve(source, sink)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.end()
        one.deafen()
        thread.join(30)
        assert not thread.is_alive()
        source.close()


@contextmanager
def edited_by(folder: Path, command: list[str] = SERVE) -> Iterator[tuple[Editor, subprocess.Popen[bytes]]]:
    """An editor and its child process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, **pipes)  # type: ignore[call-overload]
    try:
        yield Editor(process.stdin, process.stdout), process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def replay(requests: Iterable[bytes]) -> list[Json]:
    """All answers to these lines, which are all there from the start."""
    sink = io.BytesIO()
    serve(io.BytesIO(b"\n".join(requests)), sink)
    found = sink.getvalue().split(b"\n")
    assert found.pop() == b""
    for line in found:
        ANSWER.validate_json(line)
    return [json.loads(line) for line in found]


def mask_of(text: str) -> NDArray[np.bool_]:
    """(height, width) bool, from an answer."""
    data = base64.b64decode(text.removeprefix(PNG_DATA), validate=True)
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert picture is not None and picture.ndim == 2 and set(np.unique(picture)) <= {0, 255}
    return np.asarray(picture > 0)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
