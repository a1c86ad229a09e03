"""The clips that an editor has open, and what is done with them: one method a command."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, cast, get_args

from sam2track.clip import Clip
from sam2track.errors import RequestError, TrackerStateError, VideoDecodeError
from sam2track.image_sequence import ImageSequence
from sam2track.open_source import open_source
from sam2track.outputs.formats import FORMATS, open_writer
from sam2track.outputs.sidecar import SidecarModel, SidecarWriter
from sam2track.read_ahead import read_ahead
from sam2track.serve import protocol as p
from sam2track.serve.model_cache import ModelCache
from sam2track.serve.reports import clip_info, frame_report, object_report, sidecar_prompts
from sam2track.types import FrameResult, ObjectId, ObjectResult
from sam2track.version import __version__
from sam2track.video import Video

if TYPE_CHECKING:
    from sam2track.outputs.base import MaskWriter

Report = Callable[[int, int, "p.FrameReport | None"], None]
"""Tells of progress: frames done, of how many, and the last one. Raises CancelledError to end the work."""


@dataclass(frozen=True, slots=True)
class _Opened:
    number: int
    clip: Clip
    video: Video | ImageSequence

    @property
    def info(self) -> p.ClipInfo:
        return clip_info(self.number, self.clip, self.video)


class OpenClips:
    """Any number of clips, by numbers from 1 that are not used twice. For one thread."""

    def __init__(self) -> None:
        self._clips: dict[int, _Opened] = {}
        self._last_number = 0
        self._models = ModelCache()

    def answer(self, request: p.Request, report: Report) -> p.Result:
        """Does what is asked.

        Raises:
            Sam2TrackError: It cannot be done; what else is open is not affected.
        """
        return p.Result(id=request.id, result=self._do(request, report))

    def close(self) -> None:
        """Closes all clips."""
        for opened in self._clips.values():
            opened.video.close()
        self._clips.clear()

    def _do(
        self, request: p.Request, report: Report
    ) -> p.About | p.ClipInfo | p.Preview | p.FrameReport | p.Written | p.Cancelled | p.Done:
        match request:
            case p.Hello():
                commands = tuple(_command(kind) for kind in get_args(p.Request))
                return p.About(protocol=p.PROTOCOL, version=__version__, commands=commands, formats=tuple(FORMATS))
            case p.Open():
                return self._open(request)
            case p.Restore():
                return self._restore(request)
            case p.Cancel() | p.Shutdown():  # what there is to do is done where the requests wait
                return p.Done()
        opened = self._opened(request.clip)
        match request:
            case p.Info():
                return opened.info
            case p.AddPrompt() | p.Undo() | p.ClearFrame():
                return _prompted(opened.clip, request)
            case p.Remove():
                opened.clip.remove(request.object_id)
                return opened.info
            case p.Track():
                return _track(opened.clip, request, report)
            case p.FrameRequest():
                return frame_report(opened.clip.result(request.frame_idx), masks=request.masks)
            case p.Save():
                opened.clip.save(request.path, overwrite=request.overwrite)
                return p.Written(path=request.path)
            case p.Export():
                return _export(opened, request, report)
            case p.Close():
                return self._close(opened)

    def _opened(self, number: int) -> _Opened:
        if number not in self._clips:
            raise RequestError(f"there is no clip {number}; open are {list(self._clips)}", field="clip")
        return self._clips[number]

    def _open(self, request: p.Open) -> p.ClipInfo:
        video = open_source(request.video, stream=request.stream, rate=request.rate)
        model = self._models.load(request.model, request.device, request.num_threads)
        return self._added(Clip(model, video, request.options, start=request.start, stop=request.stop), video)

    def _restore(self, request: p.Restore) -> p.ClipInfo:
        video = open_source(request.video, stream=request.stream, rate=request.rate)
        model = self._models.load(request.model, request.device, request.num_threads)
        return self._added(Clip.restore(request.path, model, video), video)

    def _added(self, clip: Clip, video: Video | ImageSequence) -> p.ClipInfo:
        self._last_number += 1
        opened = _Opened(self._last_number, clip, video)
        info = opened.info
        self._clips[self._last_number] = opened
        return info

    def _close(self, opened: _Opened) -> p.Done:
        opened.video.close()
        del self._clips[opened.number]
        self._models.keep({id(other.clip.model) for other in self._clips.values()})
        return p.Done()


def _command(kind: type[p.Request]) -> str:
    [name] = get_args(kind.model_fields["command"].annotation)
    return str(name)


def _prompted(clip: Clip, request: p.AddPrompt | p.Undo | p.ClearFrame) -> p.Preview:
    found: ObjectResult | None
    object_id: ObjectId = request.object_id
    frame_idx = request.frame_idx
    match request:
        case p.AddPrompt():
            if request.time_s is not None:
                frame_idx = clip.source.frame_at(request.time_s)
            frame_idx = clip.frames.start if frame_idx is None else frame_idx
            found = clip.add_prompt(object_id=object_id, frame_idx=frame_idx, **request.arguments())
        case p.Undo():
            found = clip.undo(object_id=object_id, frame_idx=request.frame_idx)
        case p.ClearFrame():
            found = clip.clear_frame(request.frame_idx, object_id=object_id)
    shown = None if found is None else object_report(object_id, found, masks=request.masks)
    return p.Preview(frame_idx=frame_idx or 0, object=shown)


def _track(clip: Clip, request: p.Track, report: Report) -> p.Done:
    tracked = cast("Generator[FrameResult, None, None]", clip.track(request.direction))
    total = clip.due(request.direction)
    if request.until is not None:
        total = min(total, _due_until(clip, request, request.until))
    done = 0
    with closing(tracked):
        for done, result in enumerate(islice(tracked, total), 1):
            report(done, total, frame_report(result, masks=request.masks))
    return p.Done(frames=done)


def _due_until(clip: Clip, request: p.Track, until: int) -> int:
    """How many frames are due up to one."""
    if request.direction == "both":
        raise RequestError("until: got it with the direction both; track one way at a time", field="until")
    if until not in clip.frames:
        raise RequestError(
            f"until: got frame {until}; expected one from {clip.frames[0]} to {clip.frames[-1]}", field="until"
        )
    due = clip.due(request.direction)
    beyond = clip.frames[-1] - until if request.direction == "forward" else until - clip.frames[0]
    return max(due - beyond, 0)


def _export(opened: _Opened, request: p.Export, report: Report) -> p.Written:
    clip, source = opened.clip, opened.video
    if not clip.object_ids:
        raise TrackerStateError("there is no object, so no mask to write; call add_prompt first")
    done, damage = 0, None
    with ExitStack() as stack:
        writers = [stack.enter_context(writer) for writer in _writers(opened, request)]
        # To the end, where the range has no end of its own: there a damaged source says so.
        stop = None if clip.frames.stop == clip.source.num_frames else clip.frames.stop
        frames = stack.enter_context(closing(read_ahead(source.frames(clip.frames.start, stop))))
        try:
            for done, frame in enumerate(frames, 1):
                for writer in writers:
                    writer.write(frame, clip.result(frame.frame_idx))
                report(done, len(clip.frames), None)
        except VideoDecodeError as error:  # what lies before the damage is worth having
            if not done:
                raise
            damage = error.with_traceback(None)
        for writer in writers:  # the masks first: if they cannot be finished, the scores are not left alone
            if damage is not None and isinstance(writer, SidecarWriter):
                writer.note_damage(damage)
            writer.close()
    incomplete = None if damage is None else str(damage)
    return p.Written(path=request.path, scores=request.scores, frames=done, incomplete=incomplete)


def _writers(opened: _Opened, request: p.Export) -> Iterator[MaskWriter]:
    """Of the masks, and of the scores if they are wanted; each is there before the next is made."""
    clip, info = opened.clip, opened.video.info
    yield open_writer(
        request.format,
        request.path,
        info,
        object_ids=clip.object_ids,
        matte=request.matte,
        background=request.background,
        tolerance=request.tolerance,
        object_files=request.object_files,
        overwrite=request.overwrite,
    )
    if request.scores is not None:
        model = SidecarModel(name=clip.model.name, sha256=clip.model.bundle.sha256)
        prompts = sidecar_prompts(clip)
        yield SidecarWriter(
            request.scores, info, model=model, prompts=prompts, matte=request.matte, overwrite=request.overwrite
        )
