"""The command line: formats, edges, and where outputs go."""

from __future__ import annotations

import json
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from command import BESIDE_DISC, FRAMES, HEIGHT, ON_DISC, WIDTH, Command, names, read_sidecar, refused, snapshot

from sam2track.matte import MatteOptions
from sam2track.outputs.formats import FORMATS
from sam2track.video import open_video

CLICK = ["clip.mp4", "--click", ON_DISC]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_default_name_and_scores_beside_it(sam2track_: Command, tmp_path: Path, name: str) -> None:
    run = sam2track_(*CLICK, "--format", name)
    assert run.code == 0, run.err
    output = f"clip{FORMATS[name].ending}"
    if FORMATS[name].is_folder:
        sidecar = f"{output}.json"
        assert len(names(tmp_path / output)) == FRAMES
    else:
        stem, _, extension = output.rpartition(".")
        sidecar = f"{stem}.scores.json" if extension == "json" else f"{stem}.json"
        assert (tmp_path / output).stat().st_size > 200
    assert names(tmp_path) == sorted(["clip.mp4", output, sidecar])
    assert len(read_sidecar(tmp_path / sidecar).frames) == FRAMES
    assert f"{output}, scores in {sidecar}" in run.err


def lossless(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="gray") for frame in container.decode(video=0)])


def test_options_of_the_edge_are_those_of_the_library(sam2track_: Command, tmp_path: Path) -> None:
    edge = ["--soft", "--feather", "1.5", "--grow", "2", "--fill-holes", "9", "--min-area", "5", "--largest"]
    assert sam2track_(*CLICK, "--format", "ffv1", "-o", "soft.mkv", *edge).code == 0
    assert sam2track_(*CLICK, "--format", "ffv1", "-o", "hard.mkv").code == 0
    assert sam2track_(*CLICK, "--format", "png", "-o", "grown", "--grow", "2").code == 0
    assert sam2track_(*CLICK, "--format", "png", "-o", "shrunk", "--shrink", "1").code == 0
    soft, hard = lossless(tmp_path / "soft.mkv"), lossless(tmp_path / "hard.mkv")
    assert set(np.unique(hard)) == {0, 255} and len(np.unique(soft)) > 50
    assert (soft > 127).sum() > (hard > 127).sum()
    sidecar = read_sidecar(tmp_path / "soft.json")
    assert sidecar.matte == MatteOptions(soft=True, feather=1.5, grow=2, fill_holes=9, min_area=5, largest=True)
    assert read_sidecar(tmp_path / "hard.json").matte == MatteOptions()
    disc = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    for idx in range(FRAMES):
        grown, shrunk = (cv2.imread(str(tmp_path / name / f"{idx:05d}.png"), 0) for name in ("grown", "shrunk"))
        assert np.array_equal(shrunk, cv2.erode(hard[idx], disc))
        assert cv2.countNonZero(grown) > cv2.countNonZero(hard[idx])
        for name, picture in (("grown", grown), ("shrunk", shrunk)):
            [described] = read_sidecar(tmp_path / f"{name}.json").frames[idx].objects
            assert described.area == cv2.countNonZero(picture), "the scores describe the masks as written"


@pytest.mark.parametrize(
    ("colour", "expected"), [(None, (0, 0, 0)), ("green", (0, 255, 0)), ("#8040C0", (128, 64, 192))]
)
def test_a_cutout_has_its_background(
    sam2track_: Command, tmp_path: Path, colour: str | None, expected: tuple[int, int, int]
) -> None:
    background = [] if colour is None else ["--background", colour]
    assert sam2track_(*CLICK, "--format", "cutout", *background).code == 0
    picture = next(iter(open_video(tmp_path / "clip.cutout.mp4"))).rgb
    assert np.abs(picture[5, 70].astype(int) - expected).max() <= 3
    assert np.abs(picture[42, 19].astype(int) - (220, 60, 40)).max() <= 12, "the disc itself"


def test_an_output_for_each_object(sam2track_: Command, tmp_path: Path) -> None:
    two = ["--click", "sky:48,8", "--object-files", "--json"]
    run = sam2track_(*CLICK, *two, "--format", "ffv1", "-o", "out.mkv")
    assert run.code == 0, run.err
    assert json.loads(run.out)["outputs"] == ["out.1.mkv", "out.sky.mkv"]
    assert names(tmp_path) == ["clip.mp4", "out.1.mkv", "out.json", "out.sky.mkv"]
    [first, *_] = read_sidecar(tmp_path / "out.json").frames
    for found, name in zip(first.objects, ("out.1.mkv", "out.sky.mkv"), strict=True):
        assert np.count_nonzero(lossless(tmp_path / name)[0]) == found.area
    refused(sam2track_(*CLICK, *two, "--format", "ffv1", "-o", "out.mkv"), 2, "out.json exists")


def test_exact_outlines_are_asked_for_by_their_tolerance(sam2track_: Command, tmp_path: Path) -> None:
    sizes = []
    for tolerance in ("0", "2"):
        arguments = ["--format", "polygons", "--tolerance", tolerance, "-o", f"{tolerance}.json"]
        assert sam2track_(*CLICK, *arguments).code == 0
        document = json.loads((tmp_path / f"{tolerance}.json").read_text())
        assert document["tolerance"] == float(tolerance)
        sizes.append(sum(len(one) for frame in document["frames"] for one in frame["objects"][0]["polygons"]))
    assert sizes[0] > 2 * sizes[1]


MISTAKES: dict[str, tuple[list[str], str]] = {
    "prores as mp4": (["--format", "prores4444", "-o", "cut.mp4"], "got the extension '.mp4', expected .mov"),
    "vp9 as mov": (["--format", "vp9alpha", "-o", "cut.mov"], "got the extension '.mov', expected .webm"),
    "ffv1 as avi": (["--format", "ffv1", "-o", "cut.avi"], "got the extension '.avi', expected .mkv"),
    "matte as webm": (["--format", "matte", "-o", "m.webm"], "got the extension '.webm', expected one of .mp4, .mov"),
    "coco as npz": (["--format", "coco", "-o", "m.npz"], "got the extension '.npz', expected .json"),
    "npz as json": (["--format", "npz", "-o", "m.json"], "got the extension '.json', expected .npz"),
    "png as video": (["--format", "png", "-o", "x.mp4"], "a folder of .png files, so its name cannot end in .mp4"),
    "svg as file": (["--format", "svg", "-o", "x.svg"], "a folder of .svg files, so its name cannot end in .svg"),
    "no extension": (["--format", "prores4444", "-o", "cut"], "got the extension '', expected .mov"),
    "soft png": (["--soft", "--format", "png"], "PngWriter writes hard masks only"),
    "feathered overlay": (["--feather", "2"], "OverlayWriter writes hard masks only"),
    "grow and shrink": (["--grow", "2", "--shrink", "1"], "give one of them"),
    "negative grow": (["--grow", "-2"], "is not in the range"),
    "fraction of a pixel": (["--grow", "1.5"], "'1.5' is not a valid integer"),
    "endless feather": (["--feather", "inf", "--format", "matte"], "is not in the range"),
    "feather of nothing": (["--feather", "nan", "--format", "matte"], "feather nan"),
    "colour": (["--format", "cutout", "--background", "mauve"], "got 'mauve'; expected black, white, grey"),
    "short colour": (["--format", "cutout", "--background", "#fff"], "such as #00b140"),
    "background of a matte": (["--format", "matte", "--background", "blue"], "a background for matte, which has none"),
    "tolerance of a matte": (["--format", "matte", "--tolerance", "1"], "a tolerance for matte, which has none"),
    "output is input": (["--format", "cutout", "-o", "clip.mp4", "--overwrite"], "it would be lost"),
    "output exists": (["--format", "matte", "-o", "taken.mp4"], "taken.mp4 exists already"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_change_nothing(sam2track_: Command, tmp_path: Path, mistake: str) -> None:
    (tmp_path / "taken.mp4").write_text("not ours")
    before = snapshot(tmp_path)
    arguments, message = MISTAKES[mistake]
    refused(sam2track_(*CLICK, *arguments), 2, message)
    assert snapshot(tmp_path) == before


def test_help_has_every_option_once_under_its_heading(sam2track_: Command) -> None:
    shown = sam2track_("track", "--help").out
    sections = ["What to track:", "Which frames:", "Output:", "Formats:", "Masks, before", "Model:", "Other:"]
    places = [shown.index(section) for section in sections]
    assert places == sorted(places)
    for option in ("--backward", "--both", "--format", "--soft", "--min-area", "--device", "--json"):
        assert sum(line.strip().startswith(option) for line in shown.splitlines()) == 1, option
    assert max(map(len, shown.splitlines())) <= 100
    for name, known in FORMATS.items():
        assert any(line.split() == [name, *known.about.split()] for line in shown.splitlines()), name


def test_scores_never_replace_another_document(sam2track_: Command, tmp_path: Path) -> None:
    assert sam2track_(*CLICK, "--format", "polygons", "-o", "cut.json").code == 0
    assert names(tmp_path) == ["clip.mp4", "cut.json", "cut.scores.json"]
    before = snapshot(tmp_path)
    refused(sam2track_(*CLICK, "-o", "cut.mp4", "--overwrite"), 2, "cut.json is no file of scores")
    assert snapshot(tmp_path) == before


def test_absent_object_leaves_an_empty_matte(sam2track_: Command, tmp_path: Path) -> None:
    doubt = ["--report-min-iou", "1", "--soft"]
    assert sam2track_(*CLICK, "--not", BESIDE_DISC, "--format", "ffv1", "-o", "out.mkv", *doubt).code == 0
    assert lossless(tmp_path / "out.mkv").shape == (FRAMES, HEIGHT, WIDTH)
    assert not lossless(tmp_path / "out.mkv").any()
