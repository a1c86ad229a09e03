"""Running the command and reading what it left."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sam2track.outputs import Sidecar

FRAMES, WIDTH, HEIGHT = 5, 96, 64
ON_DISC, BESIDE_DISC = "19,42", "70,20"  # the disc of `media.numbered_picture`, on frame 0


@dataclass(frozen=True)
class Run:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Run]


def subprocess_run(folder: Path, *arguments: str | Path) -> Run:
    """Runs the command as a user does."""
    command = [sys.executable, "-m", "sam2track", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return Run(done.returncode, done.stdout, done.stderr)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder: names, and what the files hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def read_sidecar(path: Path) -> Sidecar:
    return Sidecar.model_validate_json(path.read_text())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(run: Run, code: int, message: str) -> None:
    """One line on stderr, nothing on stdout."""
    assert run.code == code, run.err
    assert run.out == ""
    assert re.fullmatch(r"sam2track: [^\n]+\n", run.err), run.err
    assert message in run.err
