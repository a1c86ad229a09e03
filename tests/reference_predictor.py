"""The official predictor's way of interacting, run on transformers' modules: the truth about corrections.

Transformers has the same networks as the official code, but its session never feeds earlier logits back and
forgets where corrections belong. So `ReferencePredictor` keeps the books itself, by the official rules
(facebookresearch/sam2 at 2b90b9f, `sam2_video_predictor.py`), and borrows only the networks.

How it was validated: against the official package, sam2==1.1.0, on the CPU with `fill_hole_area=0`. Both sides had
the same pixel values, 12 frames, and the same random weights of SAM 2.1 Hiera-Tiny at 512; memory in float32. Largest
difference of the logits, relative, and smallest IoU over all answers, previews of prompts among them; each with
`add_all_frames_to_correct_as_cond` True and False (the larger number is given):

    correction on 5, tracked on from 5                                     1.3e-5   0.99997
    correction on 5, tracked on from 6                                     1.3e-5   0.99997
    prompts on 0, 4, 8                                                     2.0e-6   1.00000
    backwards from the last frame, correction, on backwards                2.5e-6   1.00000
    prompt on 6, forward, backwards, correction on 8, forward              1.4e-6   0.99999
    mask on 0, click on it after a pass, mask on 4                         9.5e-6   1.00000
    second click on the same frame                                         3.1e-6   1.00000
    correction of the frame prompted first                                 5.4e-6   1.00000
    corrections on 4, 7 and 4 again without a pass between                 5.8e-6   1.00000
    two objects, prompts taken back                                        7.7e-6   0.99998
    box, then a click                                                      3.5e-6   1.00000

With memory stored in bfloat16 on both sides (a correction, three prompts, masks) rounding grows to 1.8e-4, IoU 0.9992.
Breaking one of seven rules of this file at a time gave 2.9e-3 to 1.4: the validation notices each. The script is not
part of the suite.

Frames are not filled here. Where the official predictor fills holes (CUDA only), it also feeds the filled logits back,
and encodes the memory of prompted frames from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reference import Array, Click, ReferenceResult, Sam2VideoInferenceSession, torch
from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceCache

Output = dict[str, Any]  # of one object on one frame, in transformers' names
PREVIOUS_LOGIT_LIMIT = 32.0


def image_feature_cache(num_frames: int) -> Any:
    """Room for the image features of a whole clip."""
    return Sam2VideoInferenceCache(max_vision_features_cache_size=num_frames)


@dataclass(slots=True)
class _Books:
    """What the official predictor keeps of one object.

    Attributes:
        idx: The object's position in the session.
        conditioning: Outputs that no propagation computes anew; shared with the session.
        recent: All other outputs; shared with the session.
        waiting: Outputs of prompts since the last propagation, without memory, by whether they are conditioning.
        tracked: Frames that a propagation passed, and whether it went backwards. Prompting notes nothing here.
    """

    idx: int
    conditioning: dict[int, Output]
    recent: dict[int, Output]
    waiting: dict[bool, dict[int, Output]] = field(default_factory=lambda: {False: {}, True: {}})
    tracked: dict[int, bool] = field(default_factory=dict)

    def previous(self, frame_idx: int, *, conditioning: bool) -> Output | None:
        """The newest output of a frame. An output that waits in the other drawer is not looked at."""
        drawers = (self.waiting[conditioning], self.conditioning, self.recent)
        return next((drawer[frame_idx] for drawer in drawers if frame_idx in drawer), None)


class ReferencePredictor:
    """Prompts on any frame at any time, and propagation in both directions, as the official predictor has it.

    Args:
        model: transformers' `Sam2VideoModel`.
        pixel_values: (1, 3, S, S) float32 a frame: the whole clip, whose length matters below 16 frames.
        frame_size: (height, width) of the masks.
        add_all_frames_to_correct_as_cond: Whether a correction makes its frame a conditioning one, so that it
            stays. The official default is False.
        features: From `image_feature_cache`, to be shared among predictors of one model and clip.
    """

    def __init__(
        self,
        model: Any,
        pixel_values: list[Array],
        frame_size: tuple[int, int],
        *,
        add_all_frames_to_correct_as_cond: bool,
        features: Any = None,
    ) -> None:
        self._model = model
        self._frame_size = frame_size
        self._num_frames = len(pixel_values)
        self._corrections_stay = add_all_frames_to_correct_as_cond
        self._session = Sam2VideoInferenceSession(
            video=torch.from_numpy(np.concatenate(pixel_values)),
            video_height=frame_size[0],
            video_width=frame_size[1],
            dtype=torch.float32,
        )
        self._session.cache = image_feature_cache(len(pixel_values)) if features is None else features
        self._objects: dict[int, _Books] = {}

    # -- prompts --------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def add_points(self, object_id: int, frame_idx: int, click: Click) -> ReferenceResult:
        """Prompts with all points of an object on a frame: they replace the points given there before."""
        books = self._books(object_id)
        conditioning = self._conditions(books, frame_idx)
        previous = books.previous(frame_idx, conditioning=conditioning)
        points = {
            "point_coords": torch.tensor(click.points, dtype=torch.float32)[None, None],
            "point_labels": torch.tensor(click.labels, dtype=torch.int32)[None, None],
        }
        logits = None if previous is None else previous["pred_masks"].clamp(-PREVIOUS_LOGIT_LIMIT, PREVIOUS_LOGIT_LIMIT)
        output = self._prompted(books, frame_idx, points=points, previous_logits=logits)
        books.waiting[conditioning][frame_idx] = output
        return self._result(output)

    @torch.inference_mode()
    def add_mask(self, object_id: int, frame_idx: int, mask: Array) -> ReferenceResult:
        """Prompts with a (S, S) bool mask, which becomes the output."""
        books = self._books(object_id)
        size = self._model.config.image_size
        if mask.shape != (size, size) or mask.dtype != bool:
            raise ValueError(f"got a mask of {mask.shape}, {mask.dtype}; expected ({size}, {size}), bool")
        conditioning = self._conditions(books, frame_idx)
        output = self._prompted(books, frame_idx, mask=torch.from_numpy(mask)[None, None].float())
        output["predicted_iou"] = 1.0  # the decoder ran for the pointer only
        books.waiting[conditioning][frame_idx] = output
        return self._result(output)

    def clear_frame(self, object_id: int, frame_idx: int) -> None:
        """Takes an object's prompts on a frame back; what was propagated already stays as it is."""
        books = self._books(object_id)
        for drawer in books.waiting.values():
            drawer.pop(frame_idx, None)
        output = books.conditioning.pop(frame_idx, None)
        if output is not None:
            books.recent[frame_idx] = output  # a frame like any other, until a propagation computes it anew
            books.tracked.pop(frame_idx, None)

    def _books(self, object_id: int) -> _Books:
        if object_id not in self._objects:
            idx = self._session.obj_id_to_idx(object_id)
            stored = self._session.output_dict_per_obj[idx]
            self._objects[object_id] = _Books(idx, stored["cond_frame_outputs"], stored["non_cond_frame_outputs"])
        return self._objects[object_id]

    def _conditions(self, books: _Books, frame_idx: int) -> bool:
        return frame_idx not in books.tracked or self._corrections_stay

    def _prompted(
        self,
        books: _Books,
        frame_idx: int,
        *,
        points: dict[str, Any] | None = None,
        mask: Any = None,
        previous_logits: Any = None,
    ) -> Output:
        """An initial prompt sees no memory; a correction does, in the direction in which its frame was tracked."""
        return self._infer(
            books,
            frame_idx,
            is_init_cond_frame=frame_idx not in books.tracked,
            point_inputs=points,
            mask_inputs=mask,
            reverse=books.tracked.get(frame_idx, False),
            prev_sam_mask_logits=previous_logits,
        )

    # -- propagation ----------------------------------------------------------------------------------------

    @torch.inference_mode()
    def propagate(
        self, start_frame_idx: int, reverse: bool = False, max_frames: int | None = None
    ) -> list[tuple[int, dict[int, ReferenceResult]]]:
        """Tracks all objects from a frame to the clip's end, or to its beginning.

        Args:
            start_frame_idx: Where to begin; this frame is among the results.
            reverse: Backwards. Nothing happens backwards from frame 0.
            max_frames: How many frames to go beyond the first; all by default.

        Returns:
            The frames in order of processing, each with one result an object.
        """
        self._settle_prompts()
        frames = []
        for frame_idx in self._order(start_frame_idx, reverse, max_frames):
            outputs = {object_id: self._pass(books, frame_idx, reverse) for object_id, books in self._objects.items()}
            frames.append((frame_idx, {object_id: self._result(output) for object_id, output in outputs.items()}))
        return frames

    def _order(self, start: int, reverse: bool, max_frames: int | None) -> range:
        last = self._num_frames - 1
        steps = last + 1 if max_frames is None else max_frames
        if reverse:
            return range(start, max(start - steps, 0) - 1, -1) if start > 0 else range(0)
        return range(start, min(start + steps, last) + 1)

    def _settle_prompts(self) -> None:
        """Encodes the memory of all prompts at last, and moves them to where tracked frames look."""
        for object_id, books in self._objects.items():
            for conditioning, drawer in ((False, books.recent), (True, books.conditioning)):
                for frame_idx, output in books.waiting[conditioning].items():
                    self._encode_prompted(frame_idx, output)
                    drawer[frame_idx] = output
                books.waiting[conditioning].clear()
            if not books.conditioning:
                raise RuntimeError(f"object {object_id} has no prompt")
            for frame_idx in books.conditioning:  # also a correction just made, if it was not to stay
                books.recent.pop(frame_idx, None)

    def _pass(self, books: _Books, frame_idx: int, reverse: bool) -> Output:
        """One object on one frame: a conditioning frame keeps its output, any other is computed anew."""
        output = books.conditioning.get(frame_idx)
        if output is None:
            output = self._infer(
                books, frame_idx, is_init_cond_frame=False, point_inputs=None, mask_inputs=None, reverse=reverse
            )
            self._encode(frame_idx, output, output["high_res_masks"], from_points=False)
            books.recent[frame_idx] = output
        books.tracked[frame_idx] = reverse
        return output

    # -- networks -------------------------------------------------------------------------------------------

    def _infer(self, books: _Books, frame_idx: int, **inputs: Any) -> Output:
        with self._ious() as ious:
            output: Output = self._model._run_single_frame_inference(
                inference_session=self._session, frame_idx=frame_idx, obj_idx=books.idx, batch_size=1, **inputs
            )
        output["predicted_iou"] = float(ious[-1].max())  # of several candidates the best is taken
        return output

    @contextmanager
    def _ious(self) -> Iterator[list[Any]]:
        """Predicted IoUs on their way out of the decoder: transformers drops them."""
        seen: list[Any] = []
        hook = self._model.mask_decoder.register_forward_hook(lambda _module, _inputs, out: seen.append(out[1]))
        try:
            yield seen
        finally:
            hook.remove()

    def _encode_prompted(self, frame_idx: int, output: Output) -> None:
        """The official code keeps low-res logits only, so the mask of a mask prompt comes back from these too."""
        size = [self._model.config.image_size] * 2
        masks = torch.nn.functional.interpolate(output["pred_masks"], size=size, mode="bilinear", align_corners=False)
        self._encode(frame_idx, output, masks, from_points=True)

    def _encode(self, frame_idx: int, output: Output, high_res_masks: Any, *, from_points: bool) -> None:
        features, _ = self._model._prepare_vision_features(self._session, frame_idx, batch_size=1)
        memory, position = self._model._encode_new_memory(
            current_vision_feats=features[-1],
            pred_masks_high_res=high_res_masks,
            object_score_logits=output["object_score_logits"],
            is_mask_from_pts=from_points,
        )
        output["maskmem_features"], output["maskmem_pos_enc"] = memory, position

    def _result(self, output: Output) -> ReferenceResult:
        logits = output["pred_masks"]
        resized = torch.nn.functional.interpolate(logits, size=self._frame_size, mode="bilinear", align_corners=False)
        return ReferenceResult(
            resized[0, 0].numpy() > 0,
            logits[0, 0].numpy(),
            float(output["object_score_logits"]),
            output["predicted_iou"],
        )
