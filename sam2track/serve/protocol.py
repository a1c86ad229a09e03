"""What is said on the two pipes: requests one way, answers the other, one JSON object a line.

Every request is answered by one `Result` or one `Error` with its id; `Progress` may come before. Numbers are
pixels of the displayed frame, frame indices from 0, seconds. A picture is a PNG in a `data:` text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, model_validator

from sam2track.clip import Direction
from sam2track.matte import MatteOptions
from sam2track.onnx_graph import MAX_THREADS, Device
from sam2track.open_source import Rate, StreamNumber
from sam2track.options import TrackingOptions
from sam2track.prompt_file import PromptEntry

PROTOCOL = 1  # raised when an editor written for an earlier number would not understand
MAX_LINE_BYTES = 16 * 2**20

_EXACT = 2**53  # beyond it, languages whose numbers are all float64 lose digits
RequestId: TypeAlias = (
    Annotated[int, Field(strict=True, ge=-_EXACT, le=_EXACT)] | Annotated[StrictStr, Field(max_length=100)]
)
_Text = Annotated[str, Field(min_length=1)]
_Index = Annotated[int, Field(ge=0)]
_Level = Annotated[int, Field(ge=0, le=255)]
_Box = tuple[_Index, _Index, _Index, _Index]
_ObjectId = StrictInt | Annotated[StrictStr, Field(min_length=1, max_length=100)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# -- requests -----------------------------------------------------------------------------------------------------


class _Request(_Part):
    id: RequestId


class _ClipRequest(_Request):
    clip: Annotated[int, Field(ge=1)]


class Hello(_Request):
    """Which protocol and version this is, and which formats there are. -> About"""

    command: Literal["hello"]


class _ModelRequest(_Request):
    model: _Text = "nano"
    device: Device = "auto"
    num_threads: Annotated[int, Field(ge=0, le=MAX_THREADS)] = 0


class Open(_ModelRequest):
    """Open a video from frame `start` to before `stop`. The model is loaded once for all clips. -> ClipInfo"""

    command: Literal["open"]
    video: _Text
    stream: StreamNumber = 0
    rate: Rate | None = None
    start: _Index = 0
    stop: _Index | None = None
    options: TrackingOptions = Field(default_factory=TrackingOptions)


class Restore(_ModelRequest):
    """Open a video with the prompts and masks that `save` wrote to `path`. -> ClipInfo"""

    command: Literal["restore"]
    video: _Text
    stream: StreamNumber = 0
    rate: Rate | None = None
    path: _Text


class Info(_ClipRequest):
    """What the clip is, and what is known of it by now. -> ClipInfo"""

    command: Literal["info"]


class AddPrompt(_ClipRequest, PromptEntry):
    """Say where an object is on one frame; its mask there is the answer. -> Preview"""

    command: Literal["add_prompt"]
    masks: bool = True


class Undo(_ClipRequest):
    """Take back the latest prompt of an object on a frame. -> Preview"""

    command: Literal["undo"]
    frame_idx: _Index
    object_id: _ObjectId = 1
    masks: bool = True


class ClearFrame(_ClipRequest):
    """Take back all prompts of an object on a frame. -> Preview"""

    command: Literal["clear_frame"]
    frame_idx: _Index
    object_id: _ObjectId = 1
    masks: bool = True


class Remove(_ClipRequest):
    """Forget an object. -> ClipInfo"""

    command: Literal["remove"]
    object_id: _ObjectId


class Track(_ClipRequest):
    """Track what is due, to the end of the clip or to the frame `until`; a Progress each frame. -> Done

    `until` is the last frame wanted, or going backward the first; it does not go with "both".
    """

    command: Literal["track"]
    direction: Direction = "forward"
    until: _Index | None = None
    masks: bool = False


class FrameRequest(_ClipRequest):
    """What is known on one frame. -> FrameReport"""

    command: Literal["result"]
    frame_idx: _Index
    masks: bool = True


class Save(_ClipRequest):
    """Write the prompts and masks into a file, for `restore`. -> Written"""

    command: Literal["save"]
    path: _Text
    overwrite: bool = False


class Export(_ClipRequest):
    """Write the masks to `path`, and the scores to `scores`, a JSON file; a Progress each frame. -> Written"""

    command: Literal["export"]
    path: _Text
    format: _Text = "overlay"
    scores: _Text | None = None
    matte: MatteOptions = Field(default_factory=MatteOptions)
    background: Annotated[tuple[_Level, _Level, _Level], Field(strict=False)] | None = None
    tolerance: Annotated[float, Field(ge=0, le=1000)] | None = None
    object_files: bool = False
    overwrite: bool = False

    @model_validator(mode="after")
    def _are_two_files(self) -> Export:
        if self.scores is not None and Path(self.scores).absolute() == Path(self.path).absolute():
            raise ValueError(f"got {self.scores} as scores, which is the path of the masks; expected two files")
        return self


class Close(_ClipRequest):
    """Forget the clip. -> Done"""

    command: Literal["close"]


class Cancel(_Request):
    """Take a request back that is not answered yet. It ends within one frame, with a CancelledError. -> Cancelled"""

    command: Literal["cancel"]
    target: RequestId


class Shutdown(_Request):
    """End the process, after all requests before this one. -> Done"""

    command: Literal["shutdown"]


Request: TypeAlias = (
    Hello | Open | Restore | Info | AddPrompt | Undo | ClearFrame | Remove | Track | FrameRequest | Save | Export
    | Close | Cancel | Shutdown
)  # fmt: skip


# -- answers ------------------------------------------------------------------------------------------------------


class ObjectReport(_Part):
    """An object on a frame.

    `object_score` is a logit, above 0 if the object is there; `predicted_iou` the model's own estimate of the mask's
    quality; `area` in pixels; `box` is (x0, y0, x1, y1) with x1 and y1 exclusive, null if the mask is empty;
    `mask` a PNG of the frame's size, 255 inside and 0 outside, null if it was not asked for.
    """

    object_id: _ObjectId
    present: bool
    object_score: float
    predicted_iou: float
    area: _Index
    box: _Box | None
    mask: str | None


class EventReport(_Part):
    """An object was lost, or found again, since the frame tracked before."""

    kind: Literal["lost", "found"]
    object_id: _ObjectId


class FrameReport(_Part):
    """All objects on a frame; the time is the source's own, null if it has none or the frame was not read yet."""

    frame_idx: _Index
    pts: int | None
    time_s: float | None
    objects: tuple[ObjectReport, ...]
    events: tuple[EventReport, ...] = ()


class Preview(_Part):
    """The object on the prompted frame; null if it is not known there any more."""

    frame_idx: _Index
    object: ObjectReport | None


class ObjectInfo(_Part):
    """Where an object was prompted, and on which frames its mask is known: first and last of each stretch."""

    object_id: _ObjectId
    prompted: tuple[_Index, ...]
    known: tuple[tuple[_Index, _Index], ...]


class ClipInfo(_Part):
    """A clip. `due_forward` and `due_backward`: how many frames `track` would run. `damage`: why there are not more."""

    clip: int
    video: str
    num_frames: int
    damage: str | None
    start: _Index
    stop: _Index
    width: int
    height: int
    average_rate: str | None
    time_base: str
    has_audio: bool
    model: str
    provider: str
    objects: tuple[ObjectInfo, ...]
    due_forward: int
    due_backward: int


class About(_Part):
    """This process. `formats` are those of `export`."""

    protocol: int
    version: str
    commands: tuple[str, ...]
    formats: tuple[str, ...]


class Written(_Part):
    """What was written; `incomplete` says why it is not the whole clip: the video is damaged."""

    path: str
    scores: str | None = None
    frames: int | None = None
    incomplete: str | None = None


class Cancelled(_Part):
    """Whether the request was taken back; false if it was answered already, or unknown."""

    cancelled: bool


class Done(_Part):
    """Nothing more to say, but how many frames were tracked."""

    frames: int | None = None


class Result(_Part):
    """A request is done."""

    id: RequestId
    type: Literal["result"] = "result"
    result: About | ClipInfo | Preview | FrameReport | Written | Cancelled | Done


class Error(_Part):
    """A request is refused or has failed; `code` is the name of the exception.

    `id` is null if the line had none; `field` is the part of the request that is wrong; `frame_idx` the first frame
    of a damaged video that cannot be read.
    """

    id: RequestId | None
    type: Literal["error"] = "error"
    code: str
    message: str
    field: str | None = None
    frame_idx: int | None = None


class Progress(_Part):
    """`done` of `total` frames. While tracking, with what was found; tracking both ways may end before `total`."""

    id: RequestId
    type: Literal["progress"] = "progress"
    done: int
    total: int
    frame: FrameReport | None = None


Answer: TypeAlias = Result | Error | Progress

REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="command")])
ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="type")])


def protocol_schema() -> dict[str, Any]:
    """The JSON schema of a line either way, as published in docs/serve.schema.json."""
    places, definitions = TypeAdapter.json_schemas(
        [("Request", "validation", REQUEST), ("Answer", "serialization", ANSWER)]
    )
    lines = {"Request": places["Request", "validation"], "Answer": places["Answer", "serialization"]}
    return {
        "title": f"sam2track serve, protocol {PROTOCOL}: a line",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in lines],
        "$defs": {**lines, **definitions["$defs"]},
    }
