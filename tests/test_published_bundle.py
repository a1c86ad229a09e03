"""Bundles as others publish them: the same names and shapes, fixed rows, no manifest, none of our extras."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import sam2track
from sam2track.errors import PromptError

ROOT = Path(__file__).parent.parent
BUILT_IN = ROOT / "graphs" / "nano-fp32"
CLIP = ROOT / "examples" / "clip.mp4"
KOI = (180.0, 334.0)
EXTRA_INPUTS = {"mask_prompt", "has_mask_prompt", "key_mask", "pointer_rows"}
EXTRA_OUTPUTS = {"mask_logits", "candidate_masks", "candidate_iou"}
FRAMES = 20


def publish(folder: Path, *, keep: frozenset[str] = frozenset(), points: int | None = None) -> Path:
    """A copy of the built-in bundle with fixed rows and without the extras, except those to keep."""
    (folder / "onnx").mkdir(parents=True)
    shutil.copy(ROOT / "constants" / "nano.json", folder / "constants.json")
    for path in (BUILT_IN / "onnx").iterdir():
        model = onnx.load(path)
        for values, extras in ((model.graph.input, EXTRA_INPUTS), (model.graph.output, EXTRA_OUTPUTS)):
            kept = [value for value in values if value.name not in extras - keep]
            del values[:]
            values.extend(kept)
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "memory_rows":
                    dim.dim_value = rows_of_full_memory()
                elif dim.dim_param == "points" and points is not None:
                    dim.dim_value = points
        onnx.save(model, folder / "onnx" / path.name)
    return folder


def rows_of_full_memory() -> int:
    dimensions = sam2track.load("nano", device="cpu").bundle.manifest.dimensions
    side = dimensions.image_size // 16
    pointers = dimensions.max_object_pointers * dimensions.hidden_size // dimensions.memory_size
    return dimensions.memory_frames * side**2 + pointers


@pytest.fixture(scope="module")
def frames() -> list[np.ndarray]:
    with sam2track.open_video(CLIP) as video:
        return [frame.rgb for frame, _ in zip(video, range(FRAMES), strict=False)]


def track(model: sam2track.Model, frames: list[np.ndarray], **prompt: object) -> list[np.ndarray]:
    tracker = sam2track.Tracker(model)
    tracker.add_prompt(frames[0], **(prompt or {"points": [KOI]}))
    return [result.objects[1].mask for result in tracker.track(frames)]


@pytest.fixture(scope="module")
def exact(frames: list[np.ndarray]) -> list[np.ndarray]:
    return track(sam2track.load("nano", device="cpu"), frames)


def intersection_over_union(left: np.ndarray, right: np.ndarray) -> float:
    return float((left & right).sum() / (left | right).sum())


def test_plain_published_bundle_tracks(tmp_path: Path, frames: list[np.ndarray], exact: list[np.ndarray]) -> None:
    """Without a key mask the newest entry is repeated: not exact, but close, and never a crash."""
    model = sam2track.load(publish(tmp_path / "published"), device="cpu")
    assert model.bundle.manifest is None
    assert model.graphs.fixed_memory and not model.graphs.takes_mask_logits
    masks = track(model, frames)
    ious = [intersection_over_union(*pair) for pair in zip(masks, exact, strict=True)]
    assert ious[0] > 0.99  # nothing to attend to yet: only low_res_mask's resizing differs
    assert min(ious) > 0.9


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory, frames: list[np.ndarray]) -> list[np.ndarray]:
    """Masks by a bundle whose memory has fixed rows and a key mask."""
    folder = publish(tmp_path_factory.mktemp("pinned") / "bundle", keep=frozenset({"key_mask", *EXTRA_OUTPUTS}))
    model = sam2track.load(folder, device="cpu")
    assert model.graphs.fixed_memory
    return track(model, frames)


@pytest.mark.parametrize("fill", range(1, FRAMES))
def test_fixed_rows_with_a_key_mask_are_exact_at_every_fill(
    pinned: list[np.ndarray], exact: list[np.ndarray], fill: int
) -> None:
    """Rule 16: padded rows are masked out, so frame n equals the variable-length result whatever fills the bank."""
    assert intersection_over_union(pinned[fill], exact[fill]) > 0.9999


def test_fixed_number_of_points_is_padded(tmp_path: Path, frames: list[np.ndarray]) -> None:
    model = sam2track.load(publish(tmp_path / "points", points=3), device="cpu")
    (mask,) = track(model, frames[:1])
    assert mask.any()
    with pytest.raises(PromptError, match=r"4 points.*room for 3"):
        track(model, frames[:1], points=[KOI] * 4)


def test_what_a_published_bundle_cannot_do_is_said(tmp_path: Path, frames: list[np.ndarray]) -> None:
    model = sam2track.load(publish(tmp_path / "published"), device="cpu")
    mask = np.zeros(frames[0].shape[:2], bool)
    mask[100:200, 100:200] = True
    with pytest.raises(PromptError, match="takes no mask"):
        track(model, frames[:1], mask=mask)


def test_second_click_works_without_a_mask_input(tmp_path: Path, frames: list[np.ndarray]) -> None:
    """The decoder cannot start from the first click's logits then; the clicks still add up."""
    tracker = sam2track.Tracker(sam2track.load(publish(tmp_path / "published"), device="cpu"))
    tracker.add_prompt(frames[0], points=[KOI])
    both = tracker.add_prompt(frames[0], points=[(230, 320)])
    fresh = sam2track.Tracker(sam2track.load(tmp_path / "published", device="cpu"))
    at_once = fresh.add_prompt(frames[0], points=[KOI, (230, 320)])
    assert np.array_equal(both.mask, at_once.mask)
