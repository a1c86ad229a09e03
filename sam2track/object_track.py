"""One object: what was said of it, what is remembered of it, and the loop's steps for it alone.

Objects share nothing but image features, so that adding or removing one leaves the others bit-identical.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from sam2track.errors import GraphError, NonFiniteError, PromptError, TrackerStateError
from sam2track.memory_bank import MemoryBank, MemoryEntry
from sam2track.memory_tokens import pack_memory
from sam2track.options import TrackingOptions
from sam2track.postprocess import resize_logits
from sam2track.prompts import (
    NO_PROMPT,
    clamp_previous_logits,
    mask_prompt_input,
    mask_prompt_output,
    merge_prompts,
)
from sam2track.spec import Constants
from sam2track.tracked_frames import TrackedFrames
from sam2track.types import FloatArray, Graphs, ImageFeatures, MaskOutcome, MaskPrediction, Prompt


@contextmanager
def on_frame(frame_idx: int) -> Iterator[None]:
    """Lets errors of graphs say on which frame they came up."""
    try:
        yield
    except (GraphError, NonFiniteError) as error:
        raise type(error)(f"frame {frame_idx}: {error}") from error


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A frame with its image features, which all objects and all clicks on it share.

    Attributes:
        frame_idx: The frame.
        pixel_values: (1, 3, S, S) float32: to tell whether a picture is the same.
        features: Of the vision encoder.
    """

    frame_idx: int
    pixel_values: FloatArray
    features: ImageFeatures


@dataclass(frozen=True, slots=True)
class Answer:
    """What the object was on a prompted frame after one more prompt.

    Attributes:
        prompt: Everything said of it on this frame so far.
        outcome: The answer to that.
        object_pointer: (C,) float32.
        is_correction: Whether the frame had been tracked, or passed over, before.
        high_res_logits: (1, 1, S, S) float32, while the memory of the frame is not encoded yet; they are large.
    """

    prompt: Prompt
    outcome: MaskOutcome
    object_pointer: FloatArray
    is_correction: bool = False
    high_res_logits: FloatArray | None = None

    def prediction(self, image_size: int) -> MaskPrediction:
        """As the decoder gave it, for the memory encoder; high-res logits are low-res ones, resized."""
        high_res = self.high_res_logits
        if high_res is None:
            high_res = resize_logits(self.outcome.mask_logits, (image_size, image_size))[None, None]
        return MaskPrediction(self.outcome, high_res, self.object_pointer)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A prompted frame whose memory is not encoded yet."""

    encoded: EncodedFrame
    prediction: MaskPrediction


class ObjectTrack:
    """One object.

    Args:
        graphs: The model's.
        constants: The model's.
        options: Of the tracker.
        num_frames: Length of the clip, if it is known.
    """

    def __init__(self, graphs: Graphs, constants: Constants, options: TrackingOptions, num_frames: int | None) -> None:
        self._graphs = graphs
        self._constants = constants
        self._options = options
        self._num_frames = num_frames
        self._temporal_encoding = np.array(constants.memory_temporal_positional_encoding, np.float32)
        self._waiting: _Waiting | None = None
        self._conditioned: tuple[EncodedFrame, FloatArray] | None = None  # of the correction at hand
        self.tracked_before: dict[int, MemoryEntry] = {}  # what a correction replaced
        self.bank = MemoryBank(
            constants.memory_frames,
            max_conditioning_frames=options.max_conditioning_frames,
            min_iou=options.memory_min_iou,
        )
        self.answers: dict[int, list[Answer]] = {}  # by frame, one a prompt, the latest last
        self.tracked = TrackedFrames()

    @property
    def is_prompted(self) -> bool:
        """Whether there is any prompt left that tells what the object is; without one there is no object."""
        keep = self._options.keep_corrections
        return any(keep or not answer.is_correction for answers in self.answers.values() for answer in answers)

    def known(self, frame_idx: int) -> tuple[MaskOutcome, FloatArray] | None:
        """What the object is on a frame, and its pointer there; None if that is not known (any more)."""
        if answers := self.answers.get(frame_idx):
            return answers[-1].outcome, answers[-1].object_pointer
        entry = self.bank.entry(frame_idx)
        return None if entry is None else (entry.outcome, entry.object_pointer)

    def unremembered(self) -> list[int]:
        """Prompted frames whose memory is not there: those of a restored clip."""
        waiting = None if self._waiting is None else self._waiting.encoded.frame_idx
        return [idx for idx in self.answers if idx != waiting and self.bank.entry(idx) is None]

    def forget(self, frame_idx: int) -> None:
        """A frame is as if it had never been tracked."""
        self.tracked.forget(frame_idx)
        self.bank.forget(frame_idx)

    # -- prompts ----------------------------------------------------------------------------------------------

    def merged(self, frame_idx: int, new: Prompt) -> Prompt:
        """A new prompt on a frame together with what was said of the object there before.

        Raises:
            PromptError: Together they say only where the object is not.
        """
        answers = self.answers.get(frame_idx)
        refines = answers is not None or self.tracked.reverse_at(frame_idx) is not None
        return merge_prompts(answers[-1].prompt if answers else None, new, refines=refines)

    def prompt(self, encoded: EncodedFrame, prompt: Prompt) -> MaskOutcome:
        """Everything said of the object on a frame, from `merged`. If it fails nothing has changed.

        On a frame not yet tracked it needs no memory; on others it is a correction, which uses the memory.
        Either starts from the logits that the frame had before, if there are any.
        """
        idx = encoded.frame_idx
        if self._waiting is not None and self._waiting.encoded.frame_idx != idx:
            self.settle()
        answers, reverse = self.answers.get(idx, []), self.tracked.reverse_at(idx)
        with on_frame(idx):
            prediction = self._segment(encoded, prompt, initial=reverse is None, reverse=bool(reverse))
        if not answers and (entry := self.bank.recent.get(idx)) is not None:
            self.tracked_before[idx] = entry
        answer = Answer(
            prompt,
            prediction.outcome,
            prediction.object_pointer,
            is_correction=reverse is not None,
            high_res_logits=prediction.high_res_logits,
        )
        self.answers[idx] = [*answers, answer]
        self._waiting = _Waiting(encoded, prediction)
        return prediction.outcome

    def undo(self, encoded: EncodedFrame) -> MaskOutcome | None:
        """Takes back the latest prompt on a frame: what it was before, or None if it is not known there."""
        idx = encoded.frame_idx
        answers = self._answers_of(idx)
        if len(answers) == 1:
            return self.clear_frame(idx)
        before = answers[-2]
        if self._waiting is not None and self._waiting.encoded.frame_idx != idx:
            self.settle()
        self._waiting = _Waiting(encoded, before.prediction(self._constants.image_size))
        self.answers[idx] = answers[:-1]
        return before.outcome

    def clear_frame(self, frame_idx: int) -> MaskOutcome | None:
        """Takes back all prompts on a frame; it is again what it was when it was tracked, if it was."""
        self._answers_of(frame_idx)
        del self.answers[frame_idx]
        if self._waiting is not None and self._waiting.encoded.frame_idx == frame_idx:
            self._waiting = None
        self.bank.forget(frame_idx)
        self._conditioned = None
        before = self.tracked_before.pop(frame_idx, None)
        if before is None:
            self.tracked.forget(frame_idx)
            return None
        self.bank.put_back(before)
        return before.outcome

    def _answers_of(self, frame_idx: int) -> list[Answer]:
        if frame_idx not in self.answers:
            raise TrackerStateError(
                f"there is no prompt for this object on frame {frame_idx}; it has prompts on {sorted(self.answers)}"
            )
        return self.answers[frame_idx]

    # -- tracking ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Encodes the memory of the frame prompted last, once no further click on it is to be expected.

        Until then each click runs the decoder alone.
        """
        if self._waiting is None:
            return
        encoded, prediction = self._waiting.encoded, self._waiting.prediction
        answers = self.answers[encoded.frame_idx]
        self._remember_prompted(encoded, prediction, is_correction=answers[-1].is_correction)
        self._waiting = None
        self.answers[encoded.frame_idx] = [replace(answer, high_res_logits=None) for answer in answers]

    def prompted_outcome(self, frame_idx: int) -> MaskOutcome | None:
        """The answer on a prompted frame, which is never tracked over; None on others."""
        entry = self.bank.conditioning.get(frame_idx)
        return None if entry is None else entry.outcome

    def pass_over(self, frame_idx: int, *, reverse: bool) -> None:
        """A prompted frame was reached: from now on a prompt on it is a correction."""
        self.tracked.note(frame_idx, reverse=reverse)
        if not self._options.keep_corrections:
            self.answers[frame_idx] = [answer for answer in self.answers[frame_idx] if not answer.is_correction]

    def track(self, encoded: EncodedFrame, *, reverse: bool) -> MaskOutcome:
        """The object on a frame without a prompt."""
        with on_frame(encoded.frame_idx):
            prediction = self._segment(encoded, NO_PROMPT, initial=False, reverse=reverse)
        self._remember(encoded, prediction)
        self.tracked.note(encoded.frame_idx, reverse=reverse)
        # Only a forgotten correction can have left something here.
        self.answers.pop(encoded.frame_idx, None)
        self.tracked_before.pop(encoded.frame_idx, None)
        return prediction.outcome

    def remember_again(self, encoded: EncodedFrame, answer: Answer | None = None) -> None:
        """Encodes the memory of a frame anew from what is known of it: of a prompted one from its own answers."""
        if answer is not None:
            self._remember(encoded, answer.prediction(self._constants.image_size))
            return
        answers = self.answers[encoded.frame_idx]
        first = [answer for answer in answers if self._options.keep_corrections or not answer.is_correction]
        counted = (first or answers)[-1]
        prediction = counted.prediction(self._constants.image_size)
        self._remember_prompted(encoded, prediction, is_correction=counted.is_correction)

    def _segment(self, encoded: EncodedFrame, prompt: Prompt, *, initial: bool, reverse: bool) -> MaskPrediction:
        """Condition on the memory (unless there is none yet), then decode."""
        features = encoded.features
        if prompt.mask is not None:
            return self._mask_as_output(features, prompt)
        conditioned = features.feats2_no_mem if initial else self._attend(encoded, reverse=reverse)
        if prompt is NO_PROMPT:
            return self._graphs.decode(features, conditioned, prompt)
        if not initial:
            self._conditioned = (encoded, conditioned)  # the next click on this frame sees the same memory
        previous = self._previous_logits(encoded.frame_idx)
        return self._graphs.decode(features, conditioned, prompt, previous)

    def _previous_logits(self, frame_idx: int) -> FloatArray | None:
        """What the frame's mask was before this prompt, to start from it."""
        if not self._graphs.takes_mask_logits:
            return None
        answers, entry = self.answers.get(frame_idx), self.bank.entry(frame_idx)
        outcome = answers[-1].outcome if answers else entry.outcome if entry is not None else None
        return None if outcome is None else clamp_previous_logits(outcome.mask_logits)

    def _attend(self, encoded: EncodedFrame, *, reverse: bool) -> FloatArray:
        if self._conditioned is not None and self._conditioned[0] is encoded:
            return self._conditioned[1]
        visible = self.bank.visible(
            encoded.frame_idx,
            num_frames=self._num_frames,
            reverse=reverse,
            fixed_shapes=self._graphs.fixed_memory,
        )
        memory = pack_memory(visible, self._temporal_encoding, self._graphs.encode_pointer_times)
        return self._graphs.attend(encoded.features, memory)

    def _mask_as_output(self, features: ImageFeatures, prompt: Prompt) -> MaskPrediction:
        """A mask prompt is the output itself; the decoder still runs on it, for the object pointer."""
        downsample = self._constants.mask_prompt_downsample
        if prompt.mask is None or downsample is None or not self._graphs.takes_mask_logits:
            raise PromptError("this bundle takes no mask prompt; give points or a box, or build the bundle anew")
        pointer = self._graphs.decode(
            features, features.feats2, NO_PROMPT, mask_prompt_input(prompt.mask, downsample)
        ).object_pointer
        outcome = mask_prompt_output(prompt.mask)
        high_res = resize_logits(outcome.mask_logits, prompt.mask.shape)[None, None]
        return MaskPrediction(outcome, high_res, pointer)

    def _remember(self, encoded: EncodedFrame, prediction: MaskPrediction) -> None:
        """A tracked frame. Absent frames count too."""
        self.bank.remember(self._entry(encoded, prediction, binarize=False), conditioning=False)

    def _remember_prompted(self, encoded: EncodedFrame, prediction: MaskPrediction, *, is_correction: bool) -> None:
        """A prompted frame; where corrections are not kept, one is in use until its frame is tracked again."""
        entry = self._entry(encoded, prediction, binarize=True)
        if self._options.keep_corrections or not is_correction:
            self.bank.remember(entry, conditioning=True)
        elif entry.frame_idx not in self.bank.conditioning:  # officially a prompted frame keeps its first answer
            self.bank.put_back(entry)

    def _entry(self, encoded: EncodedFrame, prediction: MaskPrediction, *, binarize: bool) -> MemoryEntry:
        """The memory sees the raw features, and a hard mask on prompted frames."""
        self._conditioned = None
        with on_frame(encoded.frame_idx):
            spatial = self._graphs.encode_memory(encoded.features, prediction, binarize=binarize)
        return MemoryEntry(encoded.frame_idx, spatial, prediction.object_pointer, prediction.outcome)
