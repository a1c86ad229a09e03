"""Prompts from JSON files and masks from pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sam2track.errors import PromptError
from sam2track.prompt_file import PromptEntry, prompts_schema, read_mask, read_prompts

SCHEMA = Path(__file__).parent.parent / "docs" / "prompts.schema.json"


def write(path: Path, *entries: dict[str, Any], **more: Any) -> Path:
    path.write_text(json.dumps({"schema_version": 1, "prompts": list(entries), **more}), encoding="utf-8")
    return path


def test_file_says_what_was_written(tmp_path: Path) -> None:
    path = write(
        tmp_path / "prompts.json",
        {"points": [[10, 20.5], [3, 4]], "labels": [1, 0]},
        {"frame_idx": 7, "object_id": "car", "box": [1, 2, 30, 40], "points": [[5, 5]]},
        {"time_s": 1.5, "object_id": 2, "mask": "masks/car.png"},
    )
    first, second, third = read_prompts(path)
    assert first == PromptEntry(points=((10, 20.5), (3, 4)), labels=(1, 0))
    assert first.arguments() == {"points": ((10.0, 20.5), (3.0, 4.0)), "labels": (1, 0), "box": None}
    assert (second.frame_idx, second.object_id, second.box) == (7, "car", (1, 2, 30, 40))
    assert (third.time_s, third.mask) == (1.5, str(tmp_path / "masks" / "car.png")), "relative to the file"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"points": [[1, 2, 3]]}, "prompts.1.points.0"),
        ({"points": [[1, "x"]]}, "prompts.1.points.0.1"),
        ({"points": [[1, 2]], "labels": [2]}, "prompts.1.labels.0"),
        ({"points": [[1, 2]], "labels": [1, 0]}, "2 labels for 1 points"),
        ({"box": [1, 2, 3]}, "prompts.1.box"),
        ({"points": [[1, 2]], "frame_idx": -1}, "prompts.1.frame_idx"),
        ({"points": [[1, 2]], "frame_idx": 1.5}, "prompts.1.frame_idx"),
        ({"points": [[1, 2]], "frame_idx": True}, "prompts.1.frame_idx"),
        ({"points": [[1, 2]], "frame_idx": 1, "time_s": 2}, "expected one of them"),
        ({"points": [[1, 2]], "object_id": ""}, "prompts.1.object_id"),
        ({"points": [[1, 2]], "object_id": None}, "prompts.1.object_id"),
        ({"points": [["1", "2"]]}, "prompts.1.points.0.0"),
        ({"box": [1, 2, True, 4]}, "prompts.1.box.2"),
        ({"points": [[1, 2]], "object_id": "a\nb"}, "printable characters"),
        ({"points": [[1, 2]], "object_id": 1.5}, "expected a whole number"),
        ({"points": [[1, 2]], "click": 1}, "prompts.1.click"),
        ({"frame_idx": 3}, "no points, no box and no mask"),
        ({"mask": "a.png", "box": [1, 2, 3, 4]}, "a mask is the answer itself"),
    ],
)
def test_offending_entry_is_named(tmp_path: Path, entry: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "prompts.json", {"points": [[1, 2]]}, entry)
    with pytest.raises(PromptError) as raised:
        read_prompts(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "Traceback" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"prompts": []}', '{"prompts": [NaN]}', '{"schema_version": 2}'])
def test_file_that_is_no_prompts_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    with pytest.raises(PromptError, match=r"prompts\.json"):
        read_prompts(path)
    with pytest.raises(PromptError, match="check the path"):
        read_prompts(tmp_path / "none.json")


def test_byte_order_mark_of_windows_editors_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "prompts.json", {"points": [[1, 2]]})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_prompts(path)) == 1


def test_entries_in_code_take_numpy_s_numbers() -> None:
    entry = PromptEntry(points=[(np.float32(1.5), np.int64(2))], object_id=np.int32(3))
    assert entry == PromptEntry(points=((1.5, 2.0),), object_id=3)
    assert type(entry.object_id) is int


def test_mask_that_is_dark_everywhere_says_how_bright_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mask.png"
    path.write_bytes(cv2.imencode(".png", MASK.astype(np.uint8) * 100)[1].tobytes())
    with pytest.raises(PromptError, match="no brighter than 100"):
        read_mask(path)


def test_published_schema_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(json.dumps(prompts_schema()))


MASK = np.zeros((12, 16), bool)
MASK[3:8, 4:11] = True


def picture_of(kind: str) -> np.ndarray[Any, Any]:
    white = MASK.astype(np.uint8) * 255
    grey = np.full_like(white, 40)
    return {
        "grey": white,
        "16 bit": white.astype(np.uint16) * 257,
        "colour": np.dstack([white * 0, white, white * 0]),
        "alpha": np.dstack([grey, grey, grey, white]),
        "opaque": np.dstack([white, white, white, white * 0 + 255]),
        "0 and 1": white // 255,
    }[kind]


@pytest.mark.parametrize("kind", ["grey", "16 bit", "colour", "alpha", "opaque", "0 and 1"])
def test_mask_is_read_from_any_kind_of_picture(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mäsk.png"
    path.write_bytes(cv2.imencode(".png", picture_of(kind))[1].tobytes())
    mask = read_mask(path)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, MASK)


@pytest.mark.parametrize("content", [b"", b"no picture", None])
def test_mask_that_is_no_picture_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mask.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PromptError, match=r"mask\.png"):
        read_mask(path)
