"""A model without weights: five graphs in plain numpy, tiny, which write down every call.

What the fake says depends on everything that it is given, so that a wrong argument shows in the masks:

- a picture's brightness is its mask: bright is inside the object, a black picture has no object;
- memory attention really attends, so each row of memory counts, and so does each position;
- every number that a test wants to read back (positions, temporal rows, pointer times) is exact in float32.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sam2track.memory_bank import MemoryBank, MemoryEntry
from sam2track.memory_tokens import pad_memory, repeat_newest
from sam2track.models import Bundle, Model
from sam2track.postprocess import resize_logits
from sam2track.spec import MAX_OBJECT_POINTERS, Constants, MaskPromptDownsample
from sam2track.tracker import Tracker
from sam2track.types import (
    FloatArray,
    FrameResult,
    ImageFeatures,
    MaskOutcome,
    MaskPrediction,
    MemoryTokens,
    ObjectResult,
    Prompt,
    SpatialMemory,
    VideoFrame,
)

S = 32  # side of the input
F = S // 16  # side of the top-level features
C = 8  # hidden size
M = 4  # memory size
LOW = 4 * F  # side of the mask logits
MEMORY_FRAMES = 7
SPATIAL_ROWS = F * F  # of one spatial memory
POINTER_ROWS = C // M  # of one object pointer
HEIGHT, WIDTH = 24, 48  # of the pictures: not square, and two different factors to S
CENTRE = (WIDTH / 2, HEIGHT / 2)
BOX = (10, 4, 30, 20)

ABSENT_LOGIT = -1024.0
TEMPORAL_ENCODING = np.arange(1, MEMORY_FRAMES + 1, dtype=np.float32)[:, None] / 8 * np.ones(M, np.float32)
POINTER_TIME_SCALE = np.array([1, 2, 4, 8], np.float32)
KINDS = ("encode_image", "decode", "encode_memory", "attend", "encode_pointer_times")

_RNG = np.random.default_rng(20240729)
_IMAGE = _RNG.normal(size=(3, C)).astype(np.float32)
_NO_MEMORY = _RNG.normal(size=(1, C, 1, 1)).astype(np.float32)
_KEY = _RNG.normal(size=(M, C)).astype(np.float32)
_VALUE = _RNG.normal(size=(M, C)).astype(np.float32)
_POINTER = _RNG.normal(size=(C + LOW * LOW, C)).astype(np.float32) / 4
_NO_OBJECT_POINTER = _RNG.normal(size=C).astype(np.float32)
_MEMORY = _RNG.normal(size=(C + 1, M)).astype(np.float32) / 4
_NO_OBJECT_MEMORY = _RNG.normal(size=M).astype(np.float32)
IMAGE_POSITION = (np.arange(SPATIAL_ROWS * C, dtype=np.float32).reshape(SPATIAL_ROWS, 1, C) % 5) / 4
MEMORY_POSITION = np.arange(SPATIAL_ROWS * M, dtype=np.float32).reshape(SPATIAL_ROWS, 1, M) * 16


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of one graph: its name, the very objects it was given, and the object it returned."""

    name: str
    arguments: dict[str, Any]
    result: Any

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]


@dataclass(slots=True)
class FakeGraphs:
    """The five graphs. `fixed_memory`: memory attention has room for so many rows and no more."""

    fixed_memory: bool = False
    takes_mask_logits: bool = True
    calls: list[Call] = field(default_factory=list)
    fail_next: str | None = None  # the graph whose next call raises ArithmeticError

    def of(self, name: str) -> list[Call]:
        """The calls of one graph, in order."""
        assert name in KINDS
        return [call for call in self.calls if call.name == name]

    @property
    def names(self) -> list[str]:
        """The names of all calls, in order."""
        return [call.name for call in self.calls]

    def forget_calls(self) -> None:
        self.calls.clear()

    def _record(self, name: str, result: Any, **arguments: Any) -> Any:
        if self.fail_next == name:
            self.fail_next = None
            raise ArithmeticError(f"{name} was told to fail")
        parts = [] if isinstance(result, np.ndarray) else [getattr(result, name) for name in result.__slots__]
        for array in (result, *parts):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # arrays are read-only for everybody: whoever writes, fails
        self.calls.append(Call(name, arguments, result))
        return result

    # -- the protocol -----------------------------------------------------------------------------------------

    def encode_image(self, pixel_values: FloatArray) -> ImageFeatures:
        _check(pixel_values, (1, 3, S, S))
        brightness = pixel_values[0].mean(axis=0)
        coarse = _shrink(pixel_values[0], F)  # (3, F, F)
        feats2 = np.einsum("kyx,kc->cyx", coarse, _IMAGE)[None].astype(np.float32)
        tokens = np.ascontiguousarray(feats2.reshape(C, -1).T)[:, None]
        result = ImageFeatures(
            feats0=_shrink(brightness[None], LOW)[None],
            feats1=_shrink(pixel_values[0, :2], 2 * F)[None],
            feats2=feats2,
            feats2_no_mem=feats2 + _NO_MEMORY,
            tokens=tokens,
            position=IMAGE_POSITION.copy(),
        )
        return self._record("encode_image", result, pixel_values=pixel_values)  # type: ignore[no-any-return]

    def decode(
        self,
        features: ImageFeatures,
        conditioned: FloatArray,
        prompt: Prompt,
        mask_logits: FloatArray | None = None,
    ) -> MaskPrediction:
        _check(conditioned, (1, C, F, F))
        _check(prompt.points, (len(prompt.labels), 2))
        assert prompt.labels.dtype == np.int32
        assert prompt.mask is None, "the decoder takes logits, not masks"
        logits = 8 * features.feats0[0, 0] + np.tanh(_grow(conditioned[0].mean(axis=0), LOW))
        logits = logits + _clicks(prompt) + features.feats1.mean() / 8
        if mask_logits is not None:
            assert self.takes_mask_logits, "this decoder takes no logits"
            _check(mask_logits, (LOW, LOW))
            logits = logits + mask_logits / 4
        present = bool(features.feats0.max() > 0) or len(prompt.points) > 0 or mask_logits is not None
        score = float(2 + np.tanh(conditioned.mean())) * (1 if present else -1)
        logits = np.asarray(logits if present else np.full_like(logits, ABSENT_LOGIT), np.float32)
        seen = np.concatenate([conditioned.mean(axis=(0, 2, 3)), np.tanh(logits.ravel() / 8)])
        pointer = (seen @ _POINTER if present else _NO_OBJECT_POINTER).astype(np.float32)
        outcome = MaskOutcome(logits, float(1 + np.tanh(logits.max() / 8)) / 2, score)
        result = MaskPrediction(outcome, resize_logits(logits, (S, S))[None, None], pointer)
        logits.flags.writeable = False
        return self._record(  # type: ignore[no-any-return]
            "decode", result, features=features, conditioned=conditioned, prompt=prompt, mask_logits=mask_logits
        )

    def encode_memory(self, features: ImageFeatures, prediction: MaskPrediction, *, binarize: bool) -> SpatialMemory:
        _check(features.feats2, (1, C, F, F))
        _check(prediction.high_res_logits, (1, 1, S, S))
        assert isinstance(binarize, bool)
        logits = prediction.high_res_logits[0, 0]
        mask = (logits > 0).astype(np.float32) if binarize else 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
        picture = np.concatenate([features.feats2[0], _shrink((mask * 20 - 10)[None], F)])
        tokens = np.einsum("kyx,km->yxm", picture, _MEMORY).reshape(SPATIAL_ROWS, 1, M)
        if prediction.outcome.object_score <= 0:
            tokens = tokens + _NO_OBJECT_MEMORY
        result = SpatialMemory(tokens.astype(np.float32), MEMORY_POSITION.copy())
        return self._record(  # type: ignore[no-any-return]
            "encode_memory", result, features=features, prediction=prediction, binarize=binarize
        )

    def attend(self, features: ImageFeatures, memory: MemoryTokens) -> FloatArray:
        rows = len(memory.tokens)
        _check(memory.tokens, (rows, 1, M))
        _check(memory.position, (rows, 1, M))
        assert rows - memory.pointer_rows >= SPATIAL_ROWS, "no spatial memory at all"
        assert (rows - memory.pointer_rows) % SPATIAL_ROWS == 0
        assert memory.pointer_rows % POINTER_ROWS == 0
        if self.fixed_memory:
            assert rows - memory.pointer_rows <= MEMORY_FRAMES * SPATIAL_ROWS, "more spatial memory than there is room"
            assert memory.pointer_rows <= MAX_OBJECT_POINTERS * POINTER_ROWS, "more pointers than there is room for"
        result = attention(features, memory)
        return self._record("attend", result, features=features, memory=memory)  # type: ignore[no-any-return]

    def encode_pointer_times(self, normalized_diffs: FloatArray) -> FloatArray:
        _check(normalized_diffs, (len(normalized_diffs),))
        assert len(normalized_diffs)
        result = normalized_diffs[:, None] * POINTER_TIME_SCALE
        return self._record("encode_pointer_times", result, normalized_diffs=normalized_diffs)  # type: ignore[no-any-return]


def attention(features: ImageFeatures, memory: MemoryTokens, key_mask: FloatArray | None = None) -> FloatArray:
    """(1, C, F, F): softmax attention of the picture to the rows of memory; rows with key mask 0 do not count."""
    query = (features.tokens + features.position)[:, 0]
    score = query @ ((memory.tokens + memory.position / 8)[:, 0] @ _KEY).T / C
    if key_mask is not None:
        score = np.where(key_mask > 0, score, -np.inf)
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    seen = weight / weight.sum(axis=1, keepdims=True) @ (memory.tokens[:, 0] @ _VALUE)
    return np.ascontiguousarray((features.tokens[:, 0] + seen).T.reshape(1, C, F, F), np.float32)


def padded(memory: MemoryTokens) -> tuple[MemoryTokens, FloatArray]:
    """Memory and key mask as graphs of fixed shapes with a key mask see them."""
    return pad_memory(memory, MEMORY_FRAMES * SPATIAL_ROWS, MAX_OBJECT_POINTERS * POINTER_ROWS)


def repeated(memory: MemoryTokens) -> MemoryTokens:
    """Memory as graphs of fixed shapes without a key mask see it."""
    units = (SPATIAL_ROWS, POINTER_ROWS)
    return repeat_newest(memory, MEMORY_FRAMES * SPATIAL_ROWS, MAX_OBJECT_POINTERS * POINTER_ROWS, units)


# -- models, pictures, memory entries -----------------------------------------------------------------------------


def fake_constants(*, mask_prompts: bool = True) -> Constants:
    """The constants of a tiny model."""
    kernel = tuple(tuple(0.25 * row + 0.0625 * column for column in range(4)) for row in range(4))
    return Constants(
        image_size=S,
        memory_frames=MEMORY_FRAMES,
        image_mean=(0.485, 0.456, 0.406),
        image_std=(0.229, 0.224, 0.225),
        memory_temporal_positional_encoding=tuple(map(tuple, TEMPORAL_ENCODING.tolist())),
        mask_prompt_downsample=MaskPromptDownsample(weight=kernel, bias=-0.5) if mask_prompts else None,
    )


def fake_model(
    *, fixed_memory: bool = False, takes_mask_logits: bool = True, mask_prompts: bool | None = None
) -> Model:
    """A `Model` of fake graphs; without `takes_mask_logits` it is like a bundle published by others.

    `mask_prompts`: whether the constants have the kernel for mask prompts; by default if the graphs take logits.
    """
    graphs = FakeGraphs(fixed_memory, takes_mask_logits)
    constants = fake_constants(mask_prompts=takes_mask_logits if mask_prompts is None else mask_prompts)
    bundle = Bundle("fake", Path("fake"), constants, manifest=None)
    return Model(bundle, graphs, "FakeExecutionProvider")


def fake_graphs(model: Model) -> FakeGraphs:
    """The fake graphs of a fake model."""
    assert isinstance(model.graphs, FakeGraphs)
    return model.graphs


def picture(number: int, *, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """(height, width, 3) uint8: a bright blob, another for every number, on dark noise."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[:height, :width]
    centre = rng.uniform(0.3, 0.7, 2) * (height, width)
    blob = (y - centre[0]) ** 2 / (height / 4) ** 2 + (x - centre[1]) ** 2 / (width / 4) ** 2 < 1
    noise = rng.integers(0, 60, (height, width, 3))
    return np.asarray(noise + blob[..., None] * rng.integers(140, 190, 3), np.uint8)


def pictures(count: int) -> list[NDArray[np.uint8]]:
    """The first pictures."""
    return [picture(number) for number in range(count)]


def black() -> NDArray[np.uint8]:
    """A picture without any object."""
    return np.zeros((HEIGHT, WIDTH, 3), np.uint8)


def memory_entry(frame_idx: int, value: float | None = None) -> MemoryEntry:
    """A remembered frame whose every number says which frame it is (or says `value`)."""
    number = np.float32(frame_idx if value is None else value)
    tokens = number + np.arange(SPATIAL_ROWS * M, dtype=np.float32).reshape(SPATIAL_ROWS, 1, M) / 64
    pointer = number + np.arange(C, dtype=np.float32) / 64 + 0.5
    outcome = MaskOutcome(np.full((LOW, LOW), number, np.float32), predicted_iou=0.5, object_score=1.0)
    return MemoryEntry(frame_idx, SpatialMemory(tokens, MEMORY_POSITION), pointer, outcome)


# -- trackers and their results ---------------------------------------------------------------------------------------


def start(*, click: tuple[float, float] = CENTRE, model: Any = None, **options: Any) -> tuple[Tracker, FakeGraphs]:
    """A tracker with one click on frame 0, and its graphs."""
    model = fake_model() if model is None else model
    tracker = Tracker(model, **options)
    tracker.add_prompt(picture(0), points=[click])
    return tracker, fake_graphs(model)


def numbered(indices: Iterable[int]) -> list[VideoFrame]:
    return [VideoFrame(picture(idx), idx) for idx in indices]


def assert_same(first: ObjectResult, second: ObjectResult) -> None:
    """Not nearly: bit by bit."""
    np.testing.assert_array_equal(first.mask, second.mask)
    np.testing.assert_array_equal(first.mask_logits, second.mask_logits)
    assert (first.object_score, first.predicted_iou) == (second.object_score, second.predicted_iou)


def assert_all_same(first: Iterable[FrameResult], second: Iterable[FrameResult], object_id: Hashable = 1) -> None:
    for left, right in zip(first, second, strict=True):
        assert left.frame_idx == right.frame_idx
        assert_same(left.objects[object_id], right.objects[object_id])


def differs(first: ObjectResult, second: ObjectResult) -> bool:
    return not np.array_equal(first.mask_logits, second.mask_logits)


def bank_of(tracker: Tracker, object_id: Hashable = 1) -> MemoryBank:
    return tracker.track_of(object_id).bank


# -- reading back what memory attention was given -------------------------------------------------------------------


def temporal_rows(memory: MemoryTokens) -> list[int]:
    """The temporal row that was added to the position of each spatial memory."""
    rows = []
    for block in spatial_blocks(memory.position, memory):
        extra = block - MEMORY_POSITION
        row = round(float(extra[0, 0, 0]) * 8) - 1
        np.testing.assert_array_equal(extra, np.broadcast_to(TEMPORAL_ENCODING[row], extra.shape))
        rows.append(row)
    return rows


def spatial_blocks(array: FloatArray, memory: MemoryTokens) -> list[FloatArray]:
    """The spatial part of tokens or positions, one array a remembered frame."""
    spatial = array[: len(array) - memory.pointer_rows]
    return [spatial[start : start + SPATIAL_ROWS] for start in range(0, len(spatial), SPATIAL_ROWS)]


def pointer_vectors(memory: MemoryTokens) -> list[FloatArray]:
    """The object pointers, (C,) each."""
    rows = memory.tokens[len(memory.tokens) - memory.pointer_rows :]
    return [rows[start : start + POINTER_ROWS].reshape(C) for start in range(0, len(rows), POINTER_ROWS)]


def index_of(array: FloatArray, candidates: Sequence[FloatArray]) -> int:
    """Which one of the candidates the array equals, exactly; it must be one only."""
    [found] = [index for index, candidate in enumerate(candidates) if np.array_equal(array, candidate)]
    return found


def frames_seen(call: Call, graphs: FakeGraphs) -> list[int]:
    """Which calls of the memory encoder the spatial memories of one call of memory attention come from."""
    memories = [encoded.result.tokens for encoded in graphs.of("encode_memory")]
    return [index_of(block, memories) for block in spatial_blocks(call["memory"].tokens, call["memory"])]


def pointers_seen(call: Call, graphs: FakeGraphs) -> list[int]:
    """Which calls of the mask decoder the object pointers of one call of memory attention come from."""
    pointers = [decoded.result.object_pointer for decoded in graphs.of("decode")]
    return [index_of(pointer, pointers) for pointer in pointer_vectors(call["memory"])]


# -- small parts ------------------------------------------------------------------------------------------------------


def _check(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32, f"got {array.dtype}"
    assert array.shape == shape, f"got {array.shape}, expected {shape}"
    assert np.isfinite(array).all()


def _shrink(maps: FloatArray, side: int) -> FloatArray:
    """(n, a, a) to (n, side, side), by averaging."""
    step = maps.shape[1] // side
    return maps.reshape(len(maps), side, step, side, step).mean(axis=(2, 4)).astype(np.float32)


def _grow(image: FloatArray, side: int) -> FloatArray:
    """(a, a) to (side, side), by repeating."""
    return np.kron(image, np.ones((side // len(image),) * 2, np.float32)).astype(np.float32)


def _clicks(prompt: Prompt) -> FloatArray:
    """(LOW, LOW): a bump at every point, up for label 1, down for 0, and others for a box's corners."""
    y, x = np.mgrid[:LOW, :LOW] * (S / LOW) + S / LOW / 2
    bumps = np.zeros((LOW, LOW), np.float32)
    for order, ((px, py), label) in enumerate(zip(prompt.points, prompt.labels, strict=True)):
        height = {0: -6.0, 1: 6.0, 2: 2.0, 3: 3.0}[int(label)] * (1 + order / 64)
        bumps += (height * np.exp(-((x - px) ** 2 + (y - py) ** 2) / 32)).astype(np.float32)
    return bumps
