"""Data sets on disk -> sequences of frames with the true masks of their objects.

Layouts, under the data set's root:

- DAVIS: `JPEGImages/480p/NAME/*.jpg`, `Annotations/480p/NAME/*.png` (or another resolution), and the sequences in
  `ImageSets/2016` or `2017`. 2016 has one object a sequence: whatever is not 0.
- MOSE: `JPEGImages/NAME/*.jpg`, `Annotations/NAME/*.png`; objects may appear later.
- SA-V: `JPEGImages_24fps/NAME/*.jpg`, `Annotations_6fps/NAME/OBJECT/*.png`; every fourth frame has masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sam2track.errors import DatasetError
from sam2track.types import BoolArray, RgbArray

Layout: TypeAlias = Literal["davis", "davis2016", "davis2017", "mose", "sav"]
_PICTURES = {".jpg", ".jpeg", ".png"}


@dataclass(frozen=True, slots=True)
class VideoSequence:
    """One sequence.

    Attributes:
        name: Its folder's name.
        frames: A picture each, in order.
        annotations: By frame index, where there are masks: a picture of labels, or a mask an object.
        merged: Whether all objects count as one, with the id 1.
    """

    name: str
    frames: tuple[Path, ...]
    annotations: Mapping[int, Path | Mapping[int, Path]]
    merged: bool = False

    def frame(self, frame_idx: int) -> RgbArray:
        """(height, width, 3) uint8 RGB."""
        import cv2

        picture = cv2.imdecode(np.fromfile(self.frames[frame_idx], np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            raise DatasetError(f"cannot read {self.frames[frame_idx]} as a picture")
        return np.ascontiguousarray(picture[:, :, ::-1], np.uint8)

    def truth(self, frame_idx: int) -> dict[int, BoolArray] | None:
        """True masks by object, of those that can be seen; None if the frame has no annotation."""
        annotation = self.annotations.get(frame_idx)
        if annotation is None:
            return None
        if isinstance(annotation, Path):
            labels = read_labels(annotation)
            if self.merged:
                return {1: labels > 0} if labels.any() else {}
            return {int(label): labels == label for label in np.unique(labels) if label != 0}
        masks = {object_id: read_labels(path) > 0 for object_id, path in annotation.items()}
        return {object_id: mask for object_id, mask in masks.items() if mask.any()}


def read_labels(path: Path) -> npt.NDArray[np.uint8]:
    """A picture of labels, (height, width) uint8: palette indices or grey values as they are stored."""
    import av

    try:
        with av.open(str(path)) as container:
            picture = next(container.decode(video=0)).to_ndarray()
    except Exception as error:  # PyAV's whole surface is foreign here
        raise DatasetError(f"cannot read the labels {path}: {error}") from error
    labels = np.asarray(picture[0] if isinstance(picture, tuple) else picture)
    return np.asarray(labels if labels.ndim == 2 else labels.max(axis=2), np.uint8)


def read_sequences(root: Path, layout: Layout, split: str | None = None) -> list[VideoSequence]:
    """The sequences of a data set, in order of their names' list.

    Args:
        root: Its folder.
        layout: How it is laid out; "davis" takes 2017 if its lists are there, else 2016.
        split: The list's name, such as val; None for the only one, or val.

    Raises:
        DatasetError: Something of the layout is missing; says what.
    """
    if not root.is_dir():
        raise DatasetError(f"there is no folder {root}; give the data set's root")
    if layout in ("mose", "sav"):
        return _plain(root, layout, split)
    year = layout.removeprefix("davis") or ("2017" if (root / "ImageSets" / "2017").is_dir() else "2016")
    frames, masks = (_resolution(root / folder) for folder in ("JPEGImages", "Annotations"))
    names = _names(root / "ImageSets" / year, split)
    return [
        VideoSequence(
            name=name,
            frames=(pictures := _pictures(frames / name)),
            annotations=_by_stem(pictures, masks / name),
            merged=year == "2016",
        )
        for name in names
    ]


def _plain(root: Path, layout: Literal["mose", "sav"], split: str | None) -> list[VideoSequence]:
    frames = _folder(root / ("JPEGImages" if layout == "mose" else "JPEGImages_24fps"))
    masks = _folder(root / ("Annotations" if layout == "mose" else "Annotations_6fps"))
    listed = root / f"{split}.txt" if split else None
    names = _lines(listed) if listed else sorted(path.name for path in masks.iterdir() if path.is_dir())
    sequences = []
    for name in names:
        pictures = _pictures(frames / name)
        annotations: dict[int, Path | dict[int, Path]] = {}
        if layout == "mose":
            annotations.update(_by_stem(pictures, masks / name))
        else:
            for folder in sorted(_folder(masks / name).iterdir()):
                for idx, path in _by_stem(pictures, folder).items():
                    of_frame = annotations.setdefault(idx, {})
                    if isinstance(of_frame, dict):
                        of_frame[int(folder.name)] = path
        sequences.append(VideoSequence(name, pictures, annotations))
    return sequences


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DatasetError(f"there is no folder {path}; is the data set laid out otherwise, or not whole?")
    return path


def _resolution(path: Path) -> Path:
    """480p if it is there, else the only one."""
    choices = sorted(child.name for child in _folder(path).iterdir() if child.is_dir())
    if "480p" in choices:
        return path / "480p"
    if len(choices) != 1:
        raise DatasetError(f"{path} has the folders {choices}; expected 480p, or one")
    return path / choices[0]


def _names(folder: Path, split: str | None) -> list[str]:
    lists = sorted(path.stem for path in _folder(folder).glob("*.txt"))
    wanted = split or (lists[0] if len(lists) == 1 else "val")
    if wanted not in lists:
        raise DatasetError(f"{folder} has the lists {lists}; expected {wanted}: choose one with --split")
    return _lines(folder / f"{wanted}.txt")


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error


def _pictures(folder: Path) -> tuple[Path, ...]:
    found = tuple(sorted(path for path in _folder(folder).iterdir() if path.suffix.lower() in _PICTURES))
    if not found:
        raise DatasetError(f"{folder} has no pictures")
    return found


def _by_stem(pictures: tuple[Path, ...], folder: Path) -> dict[int, Path]:
    """Annotations by the index of the frame of the same name."""
    index = {path.stem: idx for idx, path in enumerate(pictures)}
    found = {path.stem: path for path in _folder(folder).glob("*.png")}
    unknown = sorted(set(found) - set(index))
    if unknown:
        raise DatasetError(f"{found[unknown[0]]} has no frame of the same name")
    return {index[stem]: found[stem] for stem in sorted(found)}
