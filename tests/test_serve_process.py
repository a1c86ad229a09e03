"""`sam2track serve` as a process: how it begins, how it ends, and what is on its pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import names
from editor import SERVE, Editor, edited_by, wait_until

from sam2track.serve import PROTOCOL

HELLO = b'{"id": 1, "command": "hello"}\n'
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and shells")


@pytest.fixture
def folder(tmp_path: Path, example_clip: Path) -> Path:
    """Holds a clip that takes a few seconds."""
    (tmp_path / "clip.mp4").write_bytes(example_clip.read_bytes())
    return tmp_path


def begin_export(one: Editor) -> int:
    """Returns the id of an export that has begun."""
    one.ask("open", video="clip.mp4", num_threads=1)
    one.ask("add_prompt", clip=1, points=[[180, 334]])
    exporting = one.send("export", clip=1, path="a.mp4", scores="a.json")
    assert one.hear()["type"] == "progress"
    return exporting


@pytest.mark.parametrize("text", [b"", b"\n\n", HELLO, HELLO.rstrip(), HELLO + b"half a li"])
def test_end_of_input_ends_it_after_the_last_answer(tmp_path: Path, text: bytes) -> None:
    done = subprocess.run(SERVE, cwd=tmp_path, input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["type"] for answer in answers] == ["result"] * text.count(b"hello") + ["error"] * text.count(b"half")
    assert names(tmp_path) == []


def test_shutdown_ends_it_while_the_input_is_open(tmp_path: Path) -> None:
    with edited_by(tmp_path) as (one, process):
        assert one.ask("hello")["protocol"] == PROTOCOL
        assert one.ask("shutdown") == {"frames": None}
        assert process.wait(30) == 0
        assert process.stderr is not None and process.stderr.read() == b""


@posix
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_leaves_no_file_behind(folder: Path, name: str) -> None:
    # As in a shell, whatever this test itself was started from does with the signal.
    code = "import signal as s, sam2track.cli as c; s.signal(s.SIGINT, s.default_int_handler); c.main(['serve'])"
    with edited_by(folder, [sys.executable, "-c", code]) as (one, process):
        begin_export(one)
        wait_until(lambda: len(names(folder)) == 3)
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + getattr(signal, name)
    assert err.strip() == b"sam2track: interrupted; nothing was written"
    assert names(folder) == ["clip.mp4"]


@posix
def test_signal_ends_it_while_it_waits(tmp_path: Path) -> None:
    with edited_by(tmp_path) as (one, process):
        one.ask("hello")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_editor_that_is_gone_ends_it(folder: Path) -> None:
    with edited_by(folder) as (one, process):
        begin_export(one)
        started = time.monotonic()
        one.deafen()
        assert process.wait(30) == 1
        assert time.monotonic() - started < 10, "with the next line, not with the clip"
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert names(folder) == ["clip.mp4"]


@posix
@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [
        ("<&-", 2, "the standard input cannot be read"),
        (">&-", 1, "cannot write to the standard output"),
        (">/dev/full", 1, "No space left on device"),
        ("2>&-", 0, ""),
    ],
)
def test_closed_pipes(tmp_path: Path, redirection: str, code: int, words: str) -> None:
    command = f"{' '.join(SERVE)} {redirection}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, input=HELLO, capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert words.encode() in done.stderr and b"Traceback" not in done.stderr
    assert done.stdout.count(b"\n") == (1 if code == 0 else 0)


def test_only_answers_are_on_the_standard_output(tmp_path: Path) -> None:
    code = """
import os, sam2track.cli, sam2track.open_source, sam2track.video
def noisy(path, **options):
    print("noise", flush=True)
    os.write(1, b"noise of a library\\n")
    return sam2track.video.open_video(path, **options)
sam2track.open_source.open_video = noisy
sam2track.cli.main(["serve"])
"""
    requests = b'{"id": 1, "command": "open", "video": "none.mp4"}\n' + HELLO
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, input=requests, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["error", "result"]
    assert done.stderr == b"noise\nnoise of a library\n"


def test_answers_come_while_the_next_requests_are_written(folder: Path) -> None:
    """Nothing waits in a buffer, on either side."""
    with edited_by(folder) as (one, process):
        for _ in range(3):
            assert one.ask("hello")["protocol"] == PROTOCOL
        ids = [one.send("hello") for _ in range(300)]
        assert [one.hear()["id"] for _ in ids] == ids
        one.end()
        assert process.wait(30) == 0
