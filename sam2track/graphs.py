"""The five graphs of a bundle, one typed method each: arrays in, the tracker's values out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import DeviceError, PromptError
from sam2track.memory_tokens import pad_memory, repeat_newest
from sam2track.onnx_graph import Device, Graph, check_contract, fixed_dim, open_session, providers_for
from sam2track.spec import GRAPH_NAMES, MAX_OBJECT_POINTERS, Constants, GraphName, Shape, contracts
from sam2track.types import FloatArray, ImageFeatures, MaskOutcome, MaskPrediction, MemoryTokens, Prompt, SpatialMemory


class OnnxGraphs:
    """The five graphs of a bundle, opened. Safe to use from several threads at once.

    Args:
        paths: One file a graph.
        constants: The bundle's constants.
        device: "cpu", "cuda", or "auto": CUDA if it is there.
        num_threads: CPU threads of each graph; 0 lets ONNX Runtime decide.

    Raises:
        BundleContractError: A graph cannot be read or does not follow the contract.
        BundleNotFoundError: A file is missing.
        DeviceError: The device was asked for and is not there.
    """

    def __init__(
        self,
        paths: Mapping[GraphName, Path],
        constants: Constants,
        *,
        device: Device = "auto",
        num_threads: int = 0,
    ) -> None:
        self.constants = constants
        providers = providers_for(device)
        self._graphs = {name: Graph(name, open_session(paths[name], providers, num_threads)) for name in GRAPH_NAMES}
        self.provider = self._graphs["vision_encoder"].providers[0]
        if device == "cuda" and self.provider == "CPUExecutionProvider":
            raise DeviceError(
                "CUDA was asked for but ONNX Runtime fell back to the CPU; check its CUDA and cuDNN libraries"
            )
        hidden = self._graphs["vision_encoder"].outputs.get("feats2")
        self.hidden_size = fixed_dim(hidden.shape[1]) if hidden and len(hidden.shape) == 4 else 0
        for name, contract in contracts(constants, self.hidden_size).items():
            check_contract(self._graphs[name], contract, paths[name])

    # -- the five stages ------------------------------------------------------------------------------------

    def encode_image(self, pixel_values: FloatArray) -> ImageFeatures:
        """Vision encoder: (1, 3, S, S) float32, normalised, to features."""
        names = ("feats0", "feats1", "feats2", "feats2_no_mem", "vision_pos_embed")
        feats0, feats1, feats2, feats2_no_mem, position = self._graphs["vision_encoder"].run(
            names, {"pixel_values": pixel_values}
        )
        return ImageFeatures(feats0, feats1, feats2, feats2_no_mem, _to_tokens(feats2), _to_tokens(position))

    def decode(
        self,
        features: ImageFeatures,
        conditioned: FloatArray,
        prompt: Prompt,
        mask_logits: FloatArray | None = None,
    ) -> MaskPrediction:
        """Mask decoder.

        Args:
            features: Of the frame; only the skip features are read.
            conditioned: (1, C, F, F) float32, with memory or with the no-memory embedding.
            prompt: Points and labels; none on a tracked frame.
            mask_logits: (4F, 4F) float32, logits to start from, if the bundle takes them.

        Raises:
            PromptError: The bundle has no room for so many points, or takes no mask.
            NonFiniteError: An output has NaN or infinity.
        """
        graph = self._graphs["mask_decoder"]
        points, labels = _pad_points(prompt, graph.inputs["input_points"].shape[2])
        feeds: dict[str, Any] = {
            "feats0": features.feats0,
            "feats1": features.feats1,
            "feats2_cond": conditioned,
            "input_points": points,
            "input_labels": labels,
        }
        if mask_logits is not None:
            if not self.takes_mask_logits:
                raise PromptError("this bundle's mask decoder takes no mask; build the bundle with sam2track build")
            feeds |= {"mask_prompt": mask_logits, "has_mask_prompt": 1.0}
        logits_name = "mask_logits" if "mask_logits" in graph.outputs else "low_res_mask"
        logits, high_res, iou, score, pointer = graph.run(
            (logits_name, "high_res_mask", "iou", "object_score_logits", "object_pointer"), feeds
        )
        outcome = MaskOutcome(logits[0, 0], predicted_iou=float(iou.item()), object_score=float(score.item()))
        return MaskPrediction(outcome, high_res, pointer.reshape(-1))

    def encode_memory(self, features: ImageFeatures, prediction: MaskPrediction, *, binarize: bool) -> SpatialMemory:
        """Memory encoder.

        Args:
            features: Of the frame; the RAW top-level features are read, never the conditioned ones.
            prediction: The mask to remember and the object score.
            binarize: True on prompted frames.
        """
        tokens, position = self._graphs["memory_encoder"].run(
            ("memory_tokens", "memory_pos"),
            {
                "feats2": features.feats2,
                "high_res_mask": prediction.high_res_logits,
                "object_score_logits": prediction.outcome.object_score,
                "binarize": float(binarize),
            },
        )
        return SpatialMemory(tokens, position)

    def attend(self, features: ImageFeatures, memory: MemoryTokens) -> FloatArray:
        """Memory attention: conditioned features (1, C, F, F).

        Exact for any number of rows with free rows or a key mask; see `repeat_newest` for a bundle with
        neither.
        """
        graph = self._graphs["memory_attention"]
        feeds: dict[str, Any] = {
            "current_vision_features": features.tokens,
            "current_vision_position_embeddings": features.position,
        }
        if self.fixed_memory:
            frame_rows, pointer_unit = (
                self.constants.feature_size**2,
                self.hidden_size // self.constants.memory_size,
            )
            pointer_rows = MAX_OBJECT_POINTERS * pointer_unit
            spatial_rows = fixed_dim(graph.inputs["memory"].shape[0]) - pointer_rows
            if "key_mask" in graph.optional:
                memory, feeds["key_mask"] = pad_memory(memory, spatial_rows, pointer_rows)
            else:
                memory = repeat_newest(memory, spatial_rows, pointer_rows, (frame_rows, pointer_unit))
        else:
            feeds |= {"key_mask": np.ones(len(memory.tokens)), "pointer_rows": memory.pointer_rows}
        feeds |= {"memory": memory.tokens, "memory_pos": memory.position}
        return graph.run(("conditioned_feats",), feeds)[0]

    def encode_pointer_times(self, normalized_diffs: FloatArray) -> FloatArray:
        """Pointer temporal encoding: (n,) to (n, M), any n."""
        count = len(normalized_diffs)
        padded = np.zeros(-(-count // MAX_OBJECT_POINTERS) * MAX_OBJECT_POINTERS, np.float32)
        padded[:count] = normalized_diffs
        graph = self._graphs["pointer_tpos"]
        parts = [
            graph.run(("pointer_pos",), {"normalized_diffs": part})[0]
            for part in padded.reshape(-1, MAX_OBJECT_POINTERS)
        ]
        return np.concatenate(parts)[:count]

    # -- what this bundle can do ------------------------------------------------------------------------------

    def signatures(self) -> dict[GraphName, dict[str, dict[str, Shape]]]:
        """Shapes by name: graph, then "input", "optional" and "output"."""
        return {
            name: {
                kind: {tensor: described.shape for tensor, described in tensors.items()}
                for kind, tensors in (("input", graph.inputs), ("optional", graph.optional), ("output", graph.outputs))
            }
            for name, graph in self._graphs.items()
        }

    @property
    def fixed_memory(self) -> bool:
        """Whether memory attention has a fixed number of rows."""
        return isinstance(self._graphs["memory_attention"].inputs["memory"].shape[0], int)

    @property
    def takes_mask_logits(self) -> bool:
        """Whether the mask decoder can start from earlier logits or a mask prompt."""
        return {"mask_prompt", "has_mask_prompt"} <= set(self._graphs["mask_decoder"].optional)


def _to_tokens(features: FloatArray) -> FloatArray:
    """(1, C, F, F) to (F * F, 1, C)."""
    channels = features.shape[1]
    return np.ascontiguousarray(features.reshape(channels, -1).T)[:, None]


def _pad_points(prompt: Prompt, room: int | str) -> tuple[FloatArray, NDArray[np.int32]]:
    """(1, 1, N, 2) and (1, 1, N); a frame without points has one padding point, as in the reference."""
    count = len(prompt.points)
    if isinstance(room, int) and count > room:
        raise PromptError(f"got {count} points; this bundle's mask decoder has room for {room}")
    total = room if isinstance(room, int) else max(count, 1)
    points, labels = np.zeros((1, 1, total, 2), np.float32), np.full((1, 1, total), -1, np.int32)
    points[0, 0, :count], labels[0, 0, :count] = prompt.points, prompt.labels
    return points, labels
