"""Models by name and device: loaded once for all clips, and let go with the last of them."""

from __future__ import annotations

from collections.abc import Collection

from sam2track import models
from sam2track.models import Model
from sam2track.onnx_graph import Device, resolve_device


class ModelCache:
    """Opened models. The one asked for last is kept even without a clip: the next clip will want it."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str, int], Model] = {}  # the one asked for last is last

    def load(self, name: str, device: Device, num_threads: int) -> Model:
        """A model; see `sam2track.load`."""
        key = (name, resolve_device(device), num_threads)
        model = self._models.pop(key, None) or models.load(name, device=device, num_threads=num_threads)
        self._models[key] = model
        return model

    def keep(self, used: Collection[int]) -> None:
        """Lets go of all models but these, by their `id`, and the one asked for last."""
        for key, model in list(self._models.items())[:-1]:
            if id(model) not in used:
                del self._models[key]
