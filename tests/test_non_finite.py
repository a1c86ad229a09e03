"""NaN and infinity out of a graph are an error that names graph and frame, never "no object"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fakes
import numpy as np
import pytest

import sam2track
from sam2track.errors import NonFiniteError
from sam2track.types import VideoFrame

FRAMES = [VideoFrame(fakes.picture(idx, height=60, width=80), idx) for idx in range(4)]


class Poisoned:
    """The real graphs, one of which is fed a number that is not finite on one of its calls."""

    def __init__(self, graphs: Any, method: str, call: int, value: float) -> None:
        self._graphs, self._method, self._left, self._value = graphs, method, call, value

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._graphs, name)
        return self._poison(attribute) if name == self._method else attribute

    def _poison(self, method: Any) -> Any:
        def run(first: Any, *others: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                first = self._spoil(first)
            return method(first, *others, **named)

        return run

    def _spoil(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._spoil_array(value)
        spoiled = {name: self._spoil_array(getattr(value, name)) for name in value.__slots__}
        return replace(value, **spoiled)

    def _spoil_array(self, array: Any) -> Any:
        array = array.copy()
        array.flat[array.size // 2] = self._value
        return array


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("method", "call", "graph", "frame"),
    [
        ("encode_image", 3, "vision_encoder", 2),
        ("decode", 1, "mask_decoder", 0),
        ("decode", 3, "mask_decoder", 2),
        ("attend", 2, "memory_attention", 2),
        ("encode_memory", 2, "memory_encoder", 1),
        ("encode_pointer_times", 1, "pointer_tpos", 1),
    ],
)
def test_graph_and_frame_are_named(
    nano: sam2track.Model, method: str, call: int, graph: str, frame: int, value: float
) -> None:
    tracker = sam2track.Tracker(replace(nano, graphs=Poisoned(nano.graphs, method, call, value)))
    with pytest.raises(NonFiniteError, match=rf"^frame {frame}: the graph {graph} returned values that are not finite"):
        tracker.add_prompt(FRAMES[0], points=[(40, 30)])
        list(tracker.track(FRAMES))


def test_large_finite_values_are_no_error(nano: sam2track.Model) -> None:
    from sam2track.onnx_graph import Graph

    graph = nano.graphs._graphs["pointer_tpos"]

    class Session:
        def run(self, *_: Any) -> list[Any]:
            return [np.full((16, 64), np.finfo(np.float32).max / 4, np.float32)]

    loud = Graph.__new__(Graph)
    loud.__dict__.update(graph.__dict__)
    loud._session = Session()
    assert np.isfinite(loud.run(("pointer_pos",), {"normalized_diffs": np.zeros(16, np.float32)})[0]).all()
