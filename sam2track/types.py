"""The frozen values that travel through the tracker, one for each arrow of the data flow.

Sizes are (height, width); points are (x, y). Arrays are treated as read-only by everybody.
`S` is the model's input size, `F = S / 16`, `C` the hidden size, `M` the memory size.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]
LabelArray: TypeAlias = NDArray[np.int32]
RgbArray: TypeAlias = NDArray[np.uint8]
ObjectId: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class VideoFrame:
    """One decoded frame, as displayed (rotation applied).

    Attributes:
        rgb: (height, width, 3) uint8, RGB.
        frame_idx: Position in display order, from 0.
        pts: Presentation time in units of `time_base`; None if the source has none.
        time_base: Seconds per unit of `pts`; None if the source has none.
        duration: How long it is shown, in units of `time_base`; None if the source does not say, or has B-frames.
    """

    rgb: RgbArray
    frame_idx: int
    pts: int | None = None
    time_base: Fraction | None = None
    duration: int | None = None

    @property
    def time_s(self) -> float | None:
        """Presentation time in seconds, or None if the source has none."""
        if self.pts is None or self.time_base is None:
            return None
        return float(self.pts * self.time_base)


@dataclass(frozen=True, slots=True)
class PreparedFrame(VideoFrame):
    """A frame that was preprocessed beforehand, beside the inference of the frames before it.

    Attributes:
        pixel_values: (1, 3, S, S) float32, what `frame_to_pixel_values` makes of it for the model at hand.
    """

    pixel_values: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a video's header and first frame say.

    Attributes:
        path: The file; of a stream the source as given, without any password.
        width: Pixels, as displayed (after rotation).
        height: Pixels, as displayed (after rotation).
        average_rate: Frames a second, or None if unknown. A hint: the rate may vary.
        time_base: Seconds per unit of `pts`.
        frame_count: The header's claim, or None. A hint: it is often wrong.
        rotation: 0, 90, 180 or 270: degrees counter-clockwise by which the stored picture was turned.
        mirrored: Whether the stored picture was mirrored left to right, before that rotation.
        sample_aspect_ratio: Width : height of one displayed pixel; 1 if the source does not say.
        has_audio: Whether there is at least one audio stream.
        colour_primaries: H.273 code of the RGB primaries; 2 if the source does not say.
        colour_transfer: H.273 code of the transfer characteristic; 2 if the source does not say.
        stream: Which of the file's video streams this is, from 0, cover art not counted.
        files: Of an image sequence, the file's name of each frame (`path` is the folder); empty for a video.
        has_b_frames: Whether frames are stored in another order than they are shown in; then the durations in the
            file are not those of the frames beside them.
    """

    path: Path
    width: int
    height: int
    average_rate: Fraction | None
    time_base: Fraction
    frame_count: int | None
    rotation: int
    sample_aspect_ratio: Fraction
    has_audio: bool
    mirrored: bool = False
    colour_primaries: int = 2
    colour_transfer: int = 2
    stream: int = 0
    files: tuple[str, ...] = ()
    has_b_frames: bool = False


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One of the video streams of a file.

    Attributes:
        stream: Its number, from 0, cover art not counted: what `open_video` takes.
        codec: FFmpeg's name of the codec.
        width: Pixels, as stored (before rotation).
        height: Pixels, as stored (before rotation).
        average_rate: Frames a second, or None if unknown.
        title: What the file calls it, with the language if it has one; empty if it does not say.
    """

    stream: int
    codec: str
    width: int
    height: int
    average_rate: Fraction | None
    title: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user says about one object on one frame, in pixels of the model's input.

    Attributes:
        points: (n, 2) float32, (x, y); a box comes first, as its two corners.
        labels: (n,) int32: 1 inside, 0 outside, 2 box top-left, 3 box bottom-right.
        mask: (S, S) bool, or None. A mask prompt is the output itself; it excludes points.
    """

    points: FloatArray
    labels: LabelArray
    mask: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """What the vision encoder says of a frame; shared by all objects on it.

    Attributes:
        feats0: (1, C/8, 4F, 4F) float32, stride 4.
        feats1: (1, C/4, 2F, 2F) float32, stride 8.
        feats2: (1, C, F, F) float32, stride 16, raw: what memory attention and the memory encoder see.
        feats2_no_mem: (1, C, F, F) float32, `feats2` plus the no-memory embedding.
        tokens: (F*F, 1, C) float32, `feats2` again in the layout of memory attention.
        position: (F*F, 1, C) float32, the position encoding of `tokens`.
    """

    feats0: FloatArray
    feats1: FloatArray
    feats2: FloatArray
    feats2_no_mem: FloatArray
    tokens: FloatArray
    position: FloatArray


@dataclass(frozen=True, slots=True)
class MaskOutcome:
    """The part of a prediction that the user is shown.

    Attributes:
        mask_logits: (4F, 4F) float32, the decoder's own resolution (or (256, 256) from a bundle that
            gives only upsampled logits); -1024 everywhere if the object is absent.
        predicted_iou: The model's own estimate of the mask's IoU, in [0, 1].
        object_score: A logit; the object is absent if it is <= 0.
    """

    mask_logits: FloatArray
    predicted_iou: float
    object_score: float


@dataclass(frozen=True, slots=True)
class MaskPrediction:
    """What the mask decoder says of one object on one frame.

    Attributes:
        outcome: Logits and scores.
        high_res_logits: (1, 1, S, S) float32, for the memory encoder.
        object_pointer: (C,) float32.
    """

    outcome: MaskOutcome
    high_res_logits: FloatArray
    object_pointer: FloatArray


@dataclass(frozen=True, slots=True)
class SpatialMemory:
    """One frame's memory of one object, as the memory encoder gives it.

    Attributes:
        tokens: (F*F, 1, M) float32.
        position: (F*F, 1, M) float32, without the temporal part.
    """

    tokens: FloatArray
    position: FloatArray


@dataclass(frozen=True, slots=True)
class MemoryTokens:
    """What memory attention looks at: spatial memories first, then object pointers, as many as there are.

    Attributes:
        tokens: (rows, 1, M) float32.
        position: (rows, 1, M) float32.
        pointer_rows: How many of the last rows are object pointers.
    """

    tokens: FloatArray
    position: FloatArray
    pointer_rows: int


class Graphs(Protocol):
    """The five graphs as the tracker sees them; `sam2track.graphs` opens real ones."""

    @property
    def fixed_memory(self) -> bool:
        """Whether memory attention has room for a fixed number of rows only."""
        ...

    @property
    def takes_mask_logits(self) -> bool:
        """Whether the mask decoder can start from earlier logits or a mask prompt."""
        ...

    def encode_image(self, pixel_values: FloatArray) -> ImageFeatures:
        """Vision encoder: (1, 3, S, S) float32 to features."""
        ...

    def decode(
        self,
        features: ImageFeatures,
        conditioned: FloatArray,
        prompt: Prompt,
        mask_logits: FloatArray | None = None,
    ) -> MaskPrediction:
        """Mask decoder on conditioned features (1, C, F, F), with earlier logits (4F, 4F) if there are any."""
        ...

    def encode_memory(self, features: ImageFeatures, prediction: MaskPrediction, *, binarize: bool) -> SpatialMemory:
        """Memory encoder on the RAW features; `binarize` on prompted frames."""
        ...

    def attend(self, features: ImageFeatures, memory: MemoryTokens) -> FloatArray:
        """Memory attention: conditioned features (1, C, F, F)."""
        ...

    def encode_pointer_times(self, normalized_diffs: FloatArray) -> FloatArray:
        """Pointer temporal encoding: (n,) signed, normalised frame differences to (n, M)."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object on one frame, for the user.

    Attributes:
        mask: (height, width) bool at video size; all False if the object is absent.
        object_score: A logit; <= 0 means absent.
        predicted_iou: The model's own estimate of the mask's IoU, in [0, 1].
        mask_logits: (4F, 4F) float32 before resizing, for soft edges; read-only.
        present: Whether the object is there: its score is > 0, and its predicted IoU is not below
            `TrackingOptions.report_min_iou`.
    """

    mask: BoolArray
    object_score: float
    predicted_iou: float
    mask_logits: FloatArray
    present: bool = True


@dataclass(frozen=True, slots=True)
class TrackEvent:
    """An object was lost, or found again.

    Attributes:
        kind: "lost" on the first frame without it, "found" on the first one with it again.
        object_id: The object.
    """

    kind: Literal["lost", "found"]
    object_id: ObjectId


@dataclass(frozen=True, slots=True)
class FrameResult:
    """All objects on one frame.

    Attributes:
        frame_idx: The frame's index.
        objects: One result an object id, in the order in which the objects were added.
        pts: Presentation time in units of `time_base`, if the frame had one.
        time_base: Seconds per unit of `pts`, if the frame had one.
        events: Which objects were lost or found since the frame tracked before.
    """

    frame_idx: int
    objects: Mapping[ObjectId, ObjectResult]
    pts: int | None = None
    time_base: Fraction | None = None
    events: tuple[TrackEvent, ...] = ()
