"""J and F against an independent implementation, the layouts of data sets, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command import Command, refused
from fakes import fake_model
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sam2track
from sam2track.errors import DatasetError
from sam2track.evaluation.datasets import VideoSequence, read_labels, read_sequences
from sam2track.evaluation.metrics import contour_accuracy, decay, region_similarity
from sam2track.evaluation.protocol import evaluate, interior_point, without_overlap
from sam2track.types import ObjectResult

HEIGHT, WIDTH = 48, 80


def blob(seed: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.bool_]:
    """A ragged blob, or two, or nothing."""
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.random((height, width)).astype(np.float32), (0, 0), 4)
    return np.asarray(noise > np.quantile(noise, rng.choice([0.7, 0.9, 1.0])))


# -- metrics ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([(48, 80), (480, 854), (31, 33)]))
def test_metrics_equal_an_independent_implementation(first: int, second: int, size: tuple[int, int]) -> None:
    evaluator = pytest.importorskip("vos_benchmark.evaluator", reason="needs vos-benchmark").Evaluator()
    mask, truth = blob(first, *size), blob(second, *size)
    truth[0, 0] = True  # it does not score objects that are nowhere
    evaluator.feed_frame(mask.astype(np.uint8), truth.astype(np.uint8))
    j, f = (scores[1] / 100 for scores in evaluator.conclude())
    assert region_similarity(mask, truth) == pytest.approx(j, abs=1e-3)
    assert contour_accuracy(mask, truth) == pytest.approx(f, abs=1e-3)


def test_metrics_of_nothing_and_of_the_same() -> None:
    empty, some = np.zeros((HEIGHT, WIDTH), bool), blob(1)
    for measure in (region_similarity, contour_accuracy):
        assert measure(empty, empty) == 1
        assert measure(some, some) == 1
        assert measure(empty, some) == measure(some, empty) == 0


def test_decay_is_the_first_quarter_less_the_last() -> None:
    assert decay([1.0] * 5 + [0.5] * 10 + [0.2] * 5) == pytest.approx(5.5 / 6 - 1.5 / 6), "quarters share their ends"
    assert decay([0.5] * 9) == 0
    assert decay([0.7]) == 0


def test_interior_point_is_farthest_from_the_outside() -> None:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[5:30, 10:60] = True
    x, y = interior_point(mask)
    assert y in (16, 17) and 22 <= x <= 47
    mask[:] = True  # the frame's border counts
    x, y = interior_point(mask)
    assert y in (HEIGHT // 2 - 1, HEIGHT // 2)


def test_overlap_goes_to_the_higher_logit() -> None:
    def result(logits: NDArray[np.float32]) -> ObjectResult:
        return ObjectResult(logits > 0, 1.0, 1.0, logits)

    left = np.tile(np.linspace(5, -3, WIDTH, dtype=np.float32), (HEIGHT, 1))
    masks = without_overlap({3: result(left), 8: result(np.ascontiguousarray(left[:, ::-1]))})
    assert not (masks[3] & masks[8]).any()
    assert ((masks[3] | masks[8]) == ((left > 0) | (left[:, ::-1] > 0))).all()
    assert masks[3][:, : WIDTH // 2 - 1].all()


# -- data sets ----------------------------------------------------------------------------------------------------


def moving(idx: int) -> NDArray[np.uint8]:
    """Labels of two discs that move; the second comes later."""
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.circle(labels, (20 + 2 * idx, 20), 9, 1, -1)
    if idx >= 2:
        cv2.circle(labels, (60, 30), 7, 2, -1)
    return labels


def picture(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    colours = np.array([[60, 70, 60], [20, 30, 230], [230, 200, 20]], np.uint8)
    return colours[labels]


def write_indexed(path: Path, labels: NDArray[np.uint8]) -> None:
    """A PNG with a palette, as in DAVIS 2017."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    height, width = labels.shape
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 3, 0, 0, 0])
    rows = b"".join(b"\0" + row.tobytes() for row in labels)
    palette = bytes([0, 0, 0, 128, 0, 0, 0, 128, 0])
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"PLTE", palette)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def make(root: Path, layout: str, count: int = 6) -> Path:
    """A data set of one sequence, `discs`."""
    frames, masks = {
        "davis": ("JPEGImages/480p/discs", "Annotations/480p/discs"),
        "mose": ("JPEGImages/discs", "Annotations/discs"),
        "sav": ("JPEGImages_24fps/discs", "Annotations_6fps/discs"),
    }[layout.rstrip("0123456789")]
    (root / frames).mkdir(parents=True)
    (root / masks).mkdir(parents=True)
    for idx in range(count):
        labels = moving(idx)
        cv2.imwrite(str(root / frames / f"{idx:05d}.jpg"), picture(labels), [cv2.IMWRITE_JPEG_QUALITY, 98])
        if layout == "davis2016":
            cv2.imwrite(str(root / masks / f"{idx:05d}.png"), (labels > 0).astype(np.uint8) * 255)
        elif layout == "sav":
            for label in (1, 2) if idx % 2 == 0 else ():
                folder = root / masks / f"{label - 1:03d}"
                folder.mkdir(exist_ok=True)
                cv2.imwrite(str(folder / f"{idx:05d}.png"), (labels == label).astype(np.uint8) * 255)
        else:
            write_indexed(root / masks / f"{idx:05d}.png", labels)
    if layout.startswith("davis"):
        lists = root / "ImageSets" / layout.removeprefix("davis")
        lists.mkdir(parents=True)
        (lists / "val.txt").write_text("discs\n")
    return root


@pytest.mark.parametrize("layout", ["davis2016", "davis2017", "mose", "sav"])
def test_layouts_give_frames_and_true_masks(tmp_path: Path, layout: Any) -> None:
    [sequence] = read_sequences(make(tmp_path, layout), layout)
    assert (sequence.name, len(sequence.frames)) == ("discs", 6)
    assert sequence.frame(0).shape == (HEIGHT, WIDTH, 3)
    assert sequence.frame(0)[20, 20, 0] > 200, "RGB: the first disc is red"
    truth = [sequence.truth(idx) for idx in range(6)]
    if layout == "davis2016":
        assert all(known is not None and list(known) == [1] for known in truth)
    elif layout == "sav":
        assert [None if known is None else list(known) for known in truth] == [[0], None, [0, 1], None, [0, 1], None]
    else:
        assert [list(known or {}) for known in truth] == [[1], [1], *[[1, 2]] * 4]
    known = truth[2] or {}
    np.testing.assert_array_equal(np.any(list(known.values()), axis=0), moving(2) > 0)


def test_labels_of_a_palette_are_its_indices(tmp_path: Path) -> None:
    write_indexed(tmp_path / "labels.png", moving(3))
    np.testing.assert_array_equal(read_labels(tmp_path / "labels.png"), moving(3))
    (tmp_path / "bad.png").write_bytes(b"no")
    with pytest.raises(DatasetError, match=r"bad\.png"):
        read_labels(tmp_path / "bad.png")


@pytest.mark.parametrize(
    ("remove", "words"),
    [
        ("JPEGImages", "JPEGImages"),
        ("Annotations", "Annotations"),
        ("ImageSets", "ImageSets"),
        ("ImageSets/2017/val.txt", "choose one with --split"),
        ("JPEGImages/480p/discs/00003.jpg", "no frame of the same name"),
    ],
)
def test_data_set_that_is_not_whole_is_refused(tmp_path: Path, remove: str, words: str) -> None:
    root = make(tmp_path / "set", "davis2017")
    (root / remove).rename(tmp_path / "away")
    with pytest.raises(DatasetError, match=words):
        read_sequences(root, "davis2017")
    with pytest.raises(DatasetError, match="no folder"):
        read_sequences(tmp_path / "nowhere", "davis")


# -- protocol -----------------------------------------------------------------------------------------------------


def sequence_of(tmp_path: Path) -> VideoSequence:
    [sequence] = read_sequences(make(tmp_path, "davis2017", count=8), "davis2017")
    return sequence


@pytest.mark.parametrize("kind", ["mask", "box", "click", "user"])
def test_scores_are_those_of_the_masks_without_first_and_last_frame(
    tmp_path: Path, kind: Any, nano: sam2track.Model
) -> None:
    sequence = sequence_of(tmp_path)
    score, masks = evaluate(nano, sequence, kind, rounds=1)
    assert [(one.object_id, one.frames) for one in score.objects] == [(1, 6), (2, 5)], "the second comes on frame 2"
    for one in score.objects:
        first = 1 if one.object_id == 1 else 2
        expected = [
            region_similarity(masks[idx][one.object_id], moving(idx) == one.object_id) for idx in range(first, 7)
        ]
        assert one.j == pytest.approx(np.mean(expected))
    assert score.j == pytest.approx(np.mean([one.j for one in score.objects]))
    if kind == "mask":
        assert score.j > 0.5


def test_simulated_user_s_correction_is_no_worse_on_its_frame(tmp_path: Path, nano: sam2track.Model) -> None:
    sequence = sequence_of(tmp_path)
    none, _ = evaluate(nano, sequence, "user", rounds=0)
    click, _ = evaluate(nano, sequence, "click")
    assert none.j == pytest.approx(click.j, abs=0.01), "no correction is a click"


def test_sequence_without_masks_is_refused(tmp_path: Path) -> None:
    sequence = sequence_of(tmp_path)
    with pytest.raises(DatasetError, match="no masks"):
        evaluate(fake_model(), VideoSequence("none", sequence.frames, {}), "mask")


# -- the command --------------------------------------------------------------------------------------------------


def test_command_prints_a_table_json_and_a_sheet(sam2track_: Command, tmp_path: Path) -> None:
    make(tmp_path / "set", "davis2017")
    run = sam2track_("eval", "set", "--sheet", "worst.jpg", "--quiet")
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert lines[0].split() == ["sequence", "J&F", "J", "F", "frames/s"]
    assert lines[1].startswith("discs ") and lines[2].startswith("mean over objects")
    sheet = cv2.imread(str(tmp_path / "worst.jpg"))
    assert sheet is not None and sheet.shape[1] == 5 * 320
    run = sam2track_("eval", "set", "--json", "--quiet", "--prompt", "click")
    summary = json.loads(run.out)
    assert summary["prompt"] == "click"
    assert summary["j_and_f"] == pytest.approx((summary["j"] + summary["f"]) / 2)
    assert [row["name"] for row in summary["sequences"]] == ["discs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "none"], "no folder none"),
        (["eval", "set", "--split", "test"], "choose one with --split"),
        (["eval", "set", "--sequence", "x"], "no sequence x"),
        (["eval", "set", "--dataset", "mose"], "has no pictures"),
        (["eval", "set", "--sheet", "there.jpg"], "there.jpg exists"),
    ],
)
def test_command_refuses_before_any_work(
    sam2track_: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    make(tmp_path / "set", "davis2017")
    (tmp_path / "there.jpg").write_bytes(b"mine")
    refused(sam2track_(*arguments), 2, message)
    assert (tmp_path / "there.jpg").read_bytes() == b"mine"
