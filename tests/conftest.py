"""What several tests share: the built-in model, and the example clip with its true masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import media
import numpy as np
import pytest
from command import FRAMES, Command, Run
from numpy.typing import NDArray

import sam2track
import sam2track.models
from sam2track.cli import main
from sam2track.onnx_graph import resolve_device

EXAMPLES = Path(__file__).parent.parent / "examples"


class ExampleMasks(NamedTuple):
    """The truth about the example clip.

    Attributes:
        labels: (frames, height, width) uint8: 0 background, 1 the koi, 2 the duck.
        clicks: (2, 2) int32: (x, y) on frame 0, one an object.
    """

    labels: NDArray[np.uint8]
    clicks: NDArray[np.int32]


@pytest.fixture(scope="session")
def nano() -> sam2track.Model:
    """The built-in model, on one CPU thread: on a busy machine several wait for each other, three times as long."""
    return sam2track.load("nano", device="cpu", num_threads=1)


@pytest.fixture(scope="session")
def example_clip() -> Path:
    """The path of the example clip; not to be written to."""
    return EXAMPLES / "clip.mp4"


@pytest.fixture(scope="session")
def example_masks() -> ExampleMasks:
    """The true masks of the example clip."""
    with np.load(EXAMPLES / "clip_masks.npz") as clip:
        return ExampleMasks(clip["labels"], clip["clicks"])


@pytest.fixture
def sam2track_(
    tmp_path: Path, nano: sam2track.Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command in this process and in `tmp_path`, which holds `clip.mp4`; nano is opened once for all."""
    monkeypatch.chdir(tmp_path)
    media.make_video(tmp_path / "clip.mp4", frames=FRAMES)
    load = sam2track.models.load

    def load_nano_once(model: Any = "nano", *, device: Any = "auto", num_threads: int = 0) -> sam2track.Model:
        if model == "nano" and resolve_device(device) == "cpu":
            return nano
        return load(model, device=device, num_threads=num_threads or 1)

    monkeypatch.setattr(sam2track.models, "load", load_nano_once)

    def run(*arguments: str | Path) -> Run:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Run(ended.value.code, captured.out, captured.err)

    return run
