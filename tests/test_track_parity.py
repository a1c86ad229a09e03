"""Whole clips against the reference's own video inference: same weights, same pixels, same process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

reference = pytest.importorskip("reference")
import sam2track  # noqa: E402
from sam2track.build.bundle import build_bundle  # noqa: E402
from sam2track.build.checkpoint import Checkpoint  # noqa: E402
from sam2track.build.writer import Precision  # noqa: E402
from sam2track.preprocess import frame_to_pixel_values  # noqa: E402

pytestmark = pytest.mark.torch

Click = reference.Click
CLIP = Path(__file__).parent.parent / "examples" / "clip.mp4"

MIN_IOU = 0.995
# In float32 throughout, nothing but the order of summation differs.
EXACT_LOGITS = 1e-3
# The reference stores memory as bfloat16 (8 bits of mantissa); ours stays float32.
BFLOAT16_LOGITS = 5e-2

LENGTHS = (1, 2, 3, 8, 17, 30)


@dataclass(frozen=True)
class Case:
    """The same prompts, in pixels of the 854x480 frame."""

    objects: dict[int, tuple[list[tuple[float, float]], list[int], tuple[float, float, float, float] | None]]


KOI, DUCK = (180.0, 334.0), (726.0, 118.0)
CASES = {
    "one click": Case({1: ([KOI], [1], None)}),
    "three clicks": Case({1: ([KOI, (230, 320), (420, 190)], [1, 1, 0], None)}),
    "box": Case({1: ([], [], (620, 25, 845, 185))}),
    "box and negative click": Case({1: ([(600, 60)], [0], (620, 25, 845, 185))}),
    "two objects": Case({1: ([KOI], [1], None), 2: ([DUCK], [1], None)}),
}


@lru_cache(maxsize=1)
def frames() -> list[Any]:
    with sam2track.open_video(CLIP) as video:
        # Every second frame: more motion, so that memory matters.
        return [frame.rgb for frame in video if frame.frame_idx % 2 == 0][: max(LENGTHS)]


def track(model: sam2track.Model, clip: list[Any], case: Case, *, num_frames: int | None) -> list[Any]:
    tracker = sam2track.Tracker(model, num_frames=num_frames)
    for object_id, (points, labels, box) in case.objects.items():
        tracker.add_prompt(clip[0], points=points or None, labels=labels or None, box=box, object_id=object_id)
    return list(tracker.track(clip))


def reference_prompts(case: Case, clip: list[Any], image_size: int) -> dict[int, Any]:
    height, width = clip[0].shape[:2]
    prompts = {}
    for object_id, (points, labels, box) in case.objects.items():
        corners = [] if box is None else [box[:2], box[2:]]
        scaled = tuple((x * image_size / width, y * image_size / height) for x, y in [*corners, *points])
        prompts[object_id] = Click(scaled, (*([2, 3] if corners else []), *labels))
    return prompts


def compare(got: list[Any], expected: list[Any], max_logits: float) -> None:
    """Every frame and object; names the first frame that diverges."""
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert list(ours.objects) == list(theirs)
        for object_id, result in ours.objects.items():
            error = reference.relative_error(result.mask_logits, theirs[object_id].mask_logits)
            iou = reference.intersection_over_union(result.mask, theirs[object_id].mask)
            assert iou >= MIN_IOU and error <= max_logits, (
                f"frame {ours.frame_idx}, object {object_id} diverges first: IoU {iou:.5f}, logits {error:.1e}"
            )
            assert abs(result.object_score - theirs[object_id].object_score) <= max_logits * 20


@pytest.fixture(scope="module")
def nano() -> tuple[Any, sam2track.Model]:
    return reference.nano_model(), sam2track.load("nano", device="cpu")


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@pytest.mark.parametrize("length", LENGTHS)
def test_clip_equals_the_reference(nano: tuple[Any, sam2track.Model], case: Case, length: int) -> None:
    theirs, ours = nano
    clip = frames()[:length]
    pixels = [frame_to_pixel_values(rgb, ours.constants) for rgb in clip]
    prompts = reference_prompts(case, clip, ours.constants.image_size)
    got = track(ours, clip, case, num_frames=length)
    assert 0.005 < got[0].objects[1].mask.mean() < 0.5, "a trivial mask proves nothing"
    with reference.exact_memory():
        expected = reference.reference_track(theirs, pixels, clip[0].shape[:2], prompts)
    compare(got, expected, EXACT_LOGITS)
    if length == max(LENGTHS):  # and as the reference is when nobody touches it
        expected = reference.reference_track(theirs, pixels, clip[0].shape[:2], prompts)
        compare(got, expected, BFLOAT16_LOGITS)


def test_every_stage_of_a_clip_equals_the_reference(nano: tuple[Any, sam2track.Model]) -> None:
    """Stage by stage through eight frames, so that a failure names the first stage that diverges."""
    theirs, ours = nano
    case, clip = CASES["one click"], frames()[:8]
    pixels = [frame_to_pixel_values(rgb, ours.constants) for rgb in clip]
    with record_ours(ours) as got:
        track(ours, clip, case, num_frames=len(clip))
    with reference.exact_memory(), record_theirs(theirs) as expected:
        prompts = reference_prompts(case, clip, ours.constants.image_size)
        reference.reference_track(theirs, pixels, clip[0].shape[:2], prompts)
    assert [name for name, _ in got] == [name for name, _ in expected]
    for index, ((name, ours_value), (_, their_value)) in enumerate(zip(got, expected, strict=True)):
        error = reference.relative_error(ours_value, their_value.reshape(ours_value.shape))
        assert error <= EXACT_LOGITS, f"call {index}, {name}, diverges first: {error:.1e}"


class record_ours:  # noqa: N801  used as a context manager
    """Outputs of every stage in order of calls: features, conditioned features, logits, memory."""

    def __init__(self, model: sam2track.Model) -> None:
        self.graphs = model.graphs
        self.calls: list[tuple[str, Any]] = []

    def __enter__(self) -> list[tuple[str, Any]]:
        take = {
            "encode_image": lambda out: out.feats2,
            "attend": lambda out: out,
            "decode": lambda out: out.outcome.mask_logits,
            "encode_memory": lambda out: out.tokens,
        }
        self.patches = [self._patch(name, pick) for name, pick in take.items()]
        for patch in self.patches:
            patch.start()
        return self.calls

    def _patch(self, name: str, pick: Any) -> Any:
        original = getattr(self.graphs, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            self.calls.append((name, np.array(pick(output))))
            return output

        return mock.patch.object(self.graphs, name, recorded)

    def __exit__(self, *_: object) -> None:
        for patch in self.patches:
            patch.stop()


class record_theirs(record_ours):  # noqa: N801
    """The same stages of the reference."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls = []

    def __enter__(self) -> list[tuple[str, Any]]:
        side = self.model.config.image_size // 16

        def image(out: Any) -> Any:
            return out.fpn_hidden_states[2].permute(1, 2, 0).reshape(1, -1, side, side)

        take = {
            "get_image_features": ("encode_image", image),
            "_single_frame_forward": ("decode", lambda out: out.pred_masks),
            "_encode_new_memory": ("encode_memory", lambda out: out[0]),
        }
        self.patches = [self._wrap(self.model, method, name, pick) for method, (name, pick) in take.items()]
        attention = self.model.memory_attention
        self.patches.append(self._wrap(attention, "forward", "attend", lambda out: out.squeeze(1).transpose(1, 2)))
        for patch in self.patches:
            patch.start()
        return self.calls

    def _wrap(self, owner: Any, method: str, name: str, pick: Any) -> Any:
        original = getattr(owner, method)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            self.calls.append((name, pick(output).detach().float().numpy().copy()))
            return output

        return mock.patch.object(owner, method, recorded)


def test_stream_without_length_differs_only_in_short_clips(nano: tuple[Any, sam2track.Model]) -> None:
    """Rule 7: pointers of a clip below 16 frames are normalised by its length; a stream has none."""
    _, ours = nano
    case = CASES["one click"]
    short = frames()[:5]
    known, unknown = (track(ours, short, case, num_frames=n)[4].objects[1].mask_logits for n in (5, None))
    assert not np.array_equal(known, unknown)
    long = frames()[:17]
    known, unknown = (track(ours, long, case, num_frames=n)[16].objects[1].mask_logits for n in (17, None))
    assert np.array_equal(known, unknown)


@pytest.mark.slow
def test_full_size_network_tracks_as_the_reference(tmp_path: Path) -> None:
    """SAM 2.1 Hiera-Tiny's dimensions at 512 with random weights, four frames."""
    theirs = reference.full_size_model(512)
    config, weights = reference.network_of(theirs)
    checkpoint = Checkpoint(config, weights, "random", "0" * 64)
    build_bundle(checkpoint, tmp_path / "full", Precision.FP32)
    ours = sam2track.load(tmp_path / "full", device="cpu")
    case, clip = CASES["one click"], frames()[:4]
    pixels = [frame_to_pixel_values(rgb, ours.constants) for rgb in clip]
    got = track(ours, clip, case, num_frames=len(clip))
    with reference.exact_memory():
        prompts = reference_prompts(case, clip, 512)
        expected = reference.reference_track(theirs, pixels, clip[0].shape[:2], prompts)
    compare(got, expected, EXACT_LOGITS)
