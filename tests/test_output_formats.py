"""Every format decoded again, by other code than ours, and compared with the masks."""

from __future__ import annotations

import json
import logging
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import media
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import sam2track.outputs.coco
from sam2track.errors import OptionsError, OutputError
from sam2track.matte import MatteOptions, union_alpha
from sam2track.outputs import PolygonDocument
from sam2track.outputs.contours import mask_polygons
from sam2track.outputs.formats import FORMATS, object_paths, open_writer
from sam2track.outputs.outlines import polygons_schema
from sam2track.outputs.sidecar import sidecar_schema
from sam2track.postprocess import resize_logits
from sam2track.types import FrameResult, ObjectResult, VideoFrame
from sam2track.video import VideoInfo, open_video

DOCS = Path(__file__).parent.parent / "docs"
SIZE = (64, 96)
SOFT = MatteOptions(soft=True)
VIDEOS = {"matte": "mp4", "ffv1": "mkv", "prores4444": "mov", "vp9alpha": "webm", "cutout": "mp4", "overlay": "mp4"}
ALPHA = ["matte", "ffv1", "prores4444", "vp9alpha"]
videos = pytest.mark.parametrize("name", VIDEOS)

Bytes = NDArray[np.uint8]


def info_of(size: tuple[int, int] = SIZE, **more: Any) -> VideoInfo:
    known: dict[str, Any] = {
        "path": Path("nowhere.mp4"),
        "average_rate": Fraction(25),
        "time_base": Fraction(1, 1000),
        "frame_count": None,
        "rotation": 0,
        "sample_aspect_ratio": Fraction(1),
        "has_audio": False,
    }
    return VideoInfo(width=size[1], height=size[0], **{**known, **more})


def frames_of(count: int = 6, size: tuple[int, int] = SIZE, ticks: Sequence[int] | None = None) -> list[VideoFrame]:
    ticks = ticks or range(0, 40 * count, 40)
    return [
        VideoFrame(media.numbered_picture(idx, size[1], size[0]), idx, ticks[idx], Fraction(1, 1000))
        for idx in range(count)
    ]


def blob(frame: VideoFrame, x: float = 0.5, radius: float = 0.24) -> ObjectResult:
    """A round object with logits at a quarter of the size, moving with the frame's number."""
    height, width = frame.rgb.shape[:2]
    rows, columns = np.mgrid[: max(2, height // 4), : max(2, width // 4)] + 0.5
    across, down = columns * 4 / height - x * width / height - frame.frame_idx * 0.02, rows * 4 / height - 0.45
    logits = ((radius - np.hypot(across, down)) * 60).astype(np.float32)
    return ObjectResult(resize_logits(logits, (height, width)) > 0, 3.5, 0.75, logits)


def results_of(frames: list[VideoFrame]) -> list[FrameResult]:
    return [FrameResult(frame.frame_idx, {1: blob(frame)}, frame.pts, frame.time_base) for frame in frames]


def write(
    name: str, path: Path, frames: list[VideoFrame], results: list[FrameResult] | None = None, **options: Any
) -> list[FrameResult]:
    results = results_of(frames) if results is None else results
    ids = list(dict.fromkeys(object_id for result in results for object_id in result.objects))
    info = options.pop("info", info_of(frames[0].rgb.shape[:2]))
    with open_writer(name, path, info, object_ids=ids, **options) as writer:
        for frame, result in zip(frames, results, strict=True):
            writer.write(frame, result)
    return results


def alphas_of(frames: list[VideoFrame], results: list[FrameResult], matte: MatteOptions) -> Bytes:
    pairs = zip(frames, results, strict=True)
    return np.stack([union_alpha(frame, result, matte, np.uint8) for frame, result in pairs])


def decoded_alpha(path: Path, size: tuple[int, int] = SIZE) -> Bytes:
    """(frames, height, width): what the ffmpeg program finds of alpha, or of grey where the file is a matte."""
    if path.suffix == ".mov":
        return prores_alpha(path)
    decoder = ["-c:v", "libvpx-vp9"] if path.suffix == ".webm" else []  # FFmpeg's own decoder drops alpha
    planes = [] if path.suffix in (".mp4", ".mkv") else ["-vf", "alphaextract"]
    raw = media.ffmpeg(
        *decoder, "-i", path, *planes, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "gray", "-"
    )
    height, width = (side + side % 2 for side in size) if path.suffix in (".mp4", ".webm") else size
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width)


def prores_alpha(path: Path) -> Bytes:
    """At its own depth, then rounded: ffmpeg's conversion to 8 bits is off by one here and there."""
    planes = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            top = 2 ** int(frame.format.name.removeprefix("yuva444p").removesuffix("le")) - 1
            rows = np.frombuffer(bytes(frame.planes[3]), "<u2").reshape(frame.height, -1)[:, : frame.width]
            planes.append(np.rint(rows / top * 255).astype(np.uint8))
    return np.stack(planes)


def decoded_rgb(path: Path, size: tuple[int, int] = SIZE) -> Bytes:
    decoder = ["-c:v", "libvpx-vp9"] if path.suffix == ".webm" else []
    raw = media.ffmpeg(*decoder, "-i", path, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, *size, 3)


def iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


# ---- videos: pixels --------------------------------------------------------------------------------


@pytest.mark.parametrize("matte", [MatteOptions(), SOFT, MatteOptions(soft=True, feather=2, grow=2)], ids=str)
@pytest.mark.parametrize("name", ["ffv1", "prores4444"])
def test_lossless_alpha_is_exact(tmp_path: Path, name: str, matte: MatteOptions) -> None:
    """FFV1 is lossless; ProRes codes alpha without loss, in 10 bits that hold the 8."""
    path = tmp_path / f"out.{VIDEOS[name]}"
    frames = frames_of()
    results = write(name, path, frames, matte=matte)
    assert np.array_equal(decoded_alpha(path), alphas_of(frames, results, matte))


# H.264 at crf 18 and VP9 at crf 18 leave ringing beside a hard edge: a few levels on average within some pixels of it,
# and up to a quarter of the range on single ones. Both keep what is far from the edge, and where the edge is.
@pytest.mark.parametrize("matte", [MatteOptions(), SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("name", ["matte", "vp9alpha"])
def test_lossy_alpha_is_close(tmp_path: Path, name: str, matte: MatteOptions) -> None:
    path = tmp_path / f"out.{VIDEOS[name]}"
    frames = frames_of()
    results = write(name, path, frames, matte=matte)
    expected, got = alphas_of(frames, results, matte), decoded_alpha(path)
    difference = np.abs(got.astype(int) - expected)
    assert difference.mean() < 1.5 and difference.max() < 90
    for one, other, result in zip(got, difference, results, strict=True):
        mask = result.objects[1].mask
        assert iou(one > 127, mask) > 0.99
        band = cv2.morphologyEx(mask.view(np.uint8), cv2.MORPH_GRADIENT, np.ones((17, 17), np.uint8)) == 0
        assert other[band].max() <= 4


@pytest.mark.parametrize(("name", "mean"), [("prores4444", 1.0), ("vp9alpha", 4.0), ("png-cutout", 0.0)])
def test_alpha_is_straight_and_what_was_cut_out_is_gone(tmp_path: Path, name: str, mean: float) -> None:
    """Colours at the edge are the source's, not darkened by alpha; far outside there is nothing of the source."""
    path = tmp_path / ("out" if name == "png-cutout" else f"out.{VIDEOS[name]}")
    frames = frames_of(3, (160, 240))
    for frame in frames:
        frame.rgb[:] = np.where(frame.rgb > 128, 210, 190)  # bright everywhere: black would show
    results = write(name, path, frames, matte=MatteOptions(soft=True, feather=1))
    if name == "png-cutout":
        found = np.stack([cv2.imread(str(file), cv2.IMREAD_UNCHANGED)[..., 2::-1] for file in sorted(path.iterdir())])
    else:
        found = decoded_rgb(path, (160, 240))
    alphas = alphas_of(frames, results, MatteOptions(soft=True, feather=1))
    for frame, alpha, picture in zip(frames, alphas, found, strict=True):
        edge = (alpha > 0) & (alpha < 255)
        assert edge.sum() > 100
        assert np.abs(picture[alpha > 0].astype(int) - frame.rgb[alpha > 0]).mean() <= mean
        assert picture[edge].min() > 150
        far = cv2.dilate(alpha, np.ones((69, 69), np.uint8)) == 0
        assert far.any() and picture[far].max() <= 6


@pytest.mark.parametrize("background", [None, (0, 177, 64), (255, 255, 255)])
def test_cutout_is_the_object_on_a_colour(tmp_path: Path, background: tuple[int, int, int] | None) -> None:
    frames = frames_of(4)
    results = write("cutout", tmp_path / "out.mp4", frames, background=background, matte=SOFT)
    found = decoded_rgb(tmp_path / "out.mp4")
    for frame, alpha, picture in zip(frames, alphas_of(frames, results, SOFT), found, strict=True):
        weight = alpha[..., None] / 255
        expected = weight * frame.rgb + (1 - weight) * np.array(background or (0, 0, 0))
        difference = np.abs(picture - expected)
        assert difference.mean() < 2.5
        assert difference[cv2.dilate(alpha, np.ones((17, 17), np.uint8)) == 0].max() <= 3, "the plain colour"


def test_a_frame_without_an_object_is_empty_in_every_video(tmp_path: Path) -> None:
    frames = frames_of(3)
    results = results_of(frames)
    results[1] = FrameResult(1, {})
    for name in ALPHA:
        path = tmp_path / f"{name}.{VIDEOS[name]}"
        write(name, path, frames, results)
        alphas = decoded_alpha(path)
        assert alphas[1].max() <= 2 and alphas[0].max() > 250 and alphas[2].max() > 250, name


@pytest.mark.parametrize("size", [(65, 97), (64, 97), (3, 17), (1, 1)])
@videos
def test_odd_and_tiny_sizes(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    path = tmp_path / f"out.{VIDEOS[name]}"
    frames = frames_of(2, size)
    results = write(name, path, frames)
    if name in ALPHA:
        alphas = decoded_alpha(path, size)[:, : size[0], : size[1]]
        assert np.abs(alphas.astype(int) - alphas_of(frames, results, MatteOptions())).mean() < 4
    with av.open(str(path)) as container:
        stored = container.streams.video[0].codec_context
        even = stored.pix_fmt == "yuv420p"
        assert (stored.height, stored.width) == tuple(side + side % 2 if even else side for side in size)


# ---- videos: time, aspect, colour, sound -----------------------------------------------------------


@videos
def test_times_and_the_last_frame_s_duration_are_the_source_s(tmp_path: Path, name: str) -> None:
    ticks = [1000, 1007, 1008, 1060, 1061, 1300]
    frames = frames_of(6, ticks=ticks)
    frames[-1] = replace(frames[-1], duration=700)
    path = tmp_path / f"out.{VIDEOS[name]}"
    write(name, path, frames)
    with av.open(str(path)) as container:
        times = [frame.pts * frame.time_base for frame in container.decode(video=0) if frame.pts is not None]
        assert times == [Fraction(tick - 1000, 1000) for tick in ticks]
        assert container.duration == 1_000_000, "microseconds: 300 ms and the last frame's 700 ms"
    assert media.ffprobe_count(path) in (6, None)


@pytest.mark.skipif(not hasattr(av.VideoFrame, "duration"), reason="this PyAV does not tell a frame's duration")
def test_the_reader_says_how_long_the_last_frame_lasts(tmp_path: Path) -> None:
    frames = frames_of(4, ticks=[0, 40, 80, 500])
    frames[-1] = replace(frames[-1], duration=250)
    write("matte", tmp_path / "source.mp4", frames)
    with open_video(tmp_path / "source.mp4") as video:
        read = list(video)
        write("ffv1", tmp_path / "again.mkv", read, info=video.info)
    with av.open(str(tmp_path / "again.mkv")) as container:
        assert container.duration == 750_000


def test_b_frames_leave_the_duration_to_the_rate(tmp_path: Path) -> None:
    """There the durations in the file are those of other frames: here the last one claims the pause of 5.7 s."""
    ticks = [*range(9), 150, 151, 152, 153]
    source = media.make_video(tmp_path / "clip.mp4", frames=13, pts=ticks, options={"bf": "2"})
    with open_video(source) as video:
        info = replace(video.info, average_rate=Fraction(25))
        assert info.has_b_frames
        write("matte", tmp_path / "out.mp4", list(video), info=info)
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.duration == 154 * 40_000


@videos
def test_pixel_aspect_is_kept_or_said_to_be_left_out(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"out.{VIDEOS[name]}"
    with caplog.at_level(logging.WARNING, "sam2track"):
        write(name, path, frames_of(2), info=info_of(sample_aspect_ratio=Fraction(4, 3)))
    with av.open(str(path)) as container:
        aspect = container.streams.video[0].sample_aspect_ratio
    if name in ("ffv1", "vp9alpha"):
        assert aspect in (None, 1)
        assert "pixel aspect 4:3 left out" in caplog.text
    else:
        assert aspect == Fraction(4, 3)
        assert caplog.text == ""


@pytest.mark.parametrize("name", ["matte", "prores4444", "vp9alpha", "cutout"])
def test_colours_are_tagged_as_they_are_stored(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"out.{VIDEOS[name]}"
    write(name, path, frames_of(2), info=info_of(colour_primaries=9, colour_transfer=18))
    with av.open(str(path)) as container:
        frame: Any = next(container.decode(video=0))
        context = container.streams.video[0].codec_context
        assert (int(frame.colorspace), int(frame.color_range)) == (1, 1), "BT.709, limited"
        assert (int(context.color_primaries), int(context.color_trc)) == (9, 18), "the source's"


def test_grey_without_loss_is_full_range(tmp_path: Path) -> None:
    write("ffv1", tmp_path / "out.mkv", frames_of(2))
    with av.open(str(tmp_path / "out.mkv")) as container:
        frame: Any = next(container.decode(video=0))
    assert (frame.format.name, int(frame.color_range)) == ("gray", 2)


@pytest.mark.parametrize(
    ("name", "codec", "kept"),
    [
        ("matte", "aac", True),
        ("ffv1", "flac", True),
        ("prores4444", "aac", True),
        ("vp9alpha", "libopus", True),
        ("vp9alpha", "aac", False),
        ("cutout", "aac", True),
    ],
)
def test_sound_is_copied_or_said_to_be_left_out(
    tmp_path: Path, name: str, codec: str, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = media.make_video(tmp_path / "clip.mkv", frames=10, audio=codec)
    path = tmp_path / f"out.{VIDEOS[name]}"
    with open_video(source) as video, caplog.at_level(logging.WARNING, "sam2track"):
        write(name, path, list(video), info=video.info)
    if kept:
        assert [data for _, data in media.audio_packets(path)] == [data for _, data in media.audio_packets(source)]
        assert caplog.text == ""
    else:
        assert not open_video(path).info.has_audio
        assert len(caplog.records) == 1 and "audio (aac) left out, webm cannot hold it" in caplog.text


def test_a_turned_source_gives_an_upright_matte(tmp_path: Path) -> None:
    stored = media.make_video(tmp_path / "stored.mp4", frames=2)
    media.ffmpeg("-display_rotation", "90", "-i", stored, "-c", "copy", tmp_path / "turned.mp4")
    with open_video(tmp_path / "turned.mp4") as video:
        frames = list(video)
        results = write("ffv1", tmp_path / "out.mkv", frames, info=video.info)
    assert frames[0].rgb.shape[:2] == (96, 64)
    assert np.array_equal(decoded_alpha(tmp_path / "out.mkv", (96, 64)), alphas_of(frames, results, MatteOptions()))


# ---- PNG -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("png-soft", np.uint8), ("png16", np.uint16)])
def test_soft_png_is_the_alpha(tmp_path: Path, name: str, kind: type[np.uint8] | type[np.uint16]) -> None:
    frames = frames_of(3)
    results = write(name, tmp_path / "out", frames, matte=SOFT)
    for frame, result in zip(frames, results, strict=True):
        picture = cv2.imread(str(tmp_path / "out" / f"{frame.frame_idx:05d}.png"), cv2.IMREAD_UNCHANGED)
        expected: NDArray[Any] = union_alpha(frame, result, SOFT, kind)
        assert picture.dtype == kind and np.array_equal(picture, expected)
        assert len(np.unique(picture)) > 40


def test_cutout_png_is_the_picture_with_its_alpha(tmp_path: Path) -> None:
    frames = frames_of(2)
    results = write("png-cutout", tmp_path / "out", frames, matte=SOFT)
    for frame, alpha in zip(frames, alphas_of(frames, results, SOFT), strict=True):
        picture = cv2.imread(str(tmp_path / "out" / f"{frame.frame_idx:05d}.png"), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(picture[..., 3], alpha)
        assert np.array_equal(picture[..., 2::-1][alpha > 0], frame.rgb[alpha > 0])


# ---- several objects -------------------------------------------------------------------------------


def two_objects(frames: list[VideoFrame]) -> list[FrameResult]:
    """The second one from frame 1 on."""
    results = []
    for frame in frames:
        both: dict[Any, ObjectResult] = {1: blob(frame, x=0.35), "big/one": blob(frame, x=0.6)}
        if frame.frame_idx == 0:
            del both["big/one"]
        results.append(FrameResult(frame.frame_idx, both, frame.pts, frame.time_base))
    return results


def test_several_objects_are_one_matte(tmp_path: Path) -> None:
    frames = frames_of(3)
    results = write("ffv1", tmp_path / "out.mkv", frames, two_objects(frames))
    for alpha, result in zip(decoded_alpha(tmp_path / "out.mkv"), results, strict=True):
        assert np.array_equal(alpha > 0, np.any([found.mask for found in result.objects.values()], axis=0))


@pytest.mark.parametrize(("name", "output"), [("ffv1", "out.mkv"), ("png", "out")])
def test_object_files_hold_an_object_each(tmp_path: Path, name: str, output: str) -> None:
    frames = frames_of(3)
    results = write(name, tmp_path / output, frames, two_objects(frames), object_files=True)
    suffix = Path(output).suffix
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out.1{suffix}", f"out.big_one{suffix}"]
    for object_id, path in ((1, tmp_path / f"out.1{suffix}"), ("big/one", tmp_path / f"out.big_one{suffix}")):
        if name == "ffv1":
            alphas = decoded_alpha(path)
        else:
            alphas = np.stack([cv2.imread(str(file), cv2.IMREAD_UNCHANGED) for file in sorted(path.iterdir())])
        assert len(alphas) == 3, "every frame, also those without the object"
        for alpha, result in zip(alphas, results, strict=True):
            found = result.objects.get(object_id)
            assert np.array_equal(alpha > 0, found.mask if found else np.zeros(SIZE, bool))


def test_object_files_leave_nothing_when_one_fails(tmp_path: Path) -> None:
    frames = frames_of(2)
    (tmp_path / "out.2.mkv").write_text("somebody else's")
    with pytest.raises(OutputError, match=r"out\.2\.mkv exists"):
        open_writer("ffv1", tmp_path / "out.mkv", info_of(), object_ids=[1, 2], object_files=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.2.mkv"]
    writer = open_writer("ffv1", tmp_path / "new.mkv", info_of(), object_ids=[1, 2], object_files=True)
    writer.write(frames[0], results_of(frames)[0])
    with pytest.raises(OutputError, match="masks of frame 0"):
        writer.write(frames[1], results_of(frames)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["out.2.mkv"]


def test_objects_that_cannot_be_told_apart_by_name_are_refused() -> None:
    with pytest.raises(OptionsError, match="told apart"):
        object_paths("out.mkv", ["a/b", "a:b"])


# ---- COCO and NPZ ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
def test_coco_is_read_by_pycocotools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pycocotools.coco import COCO

    frames = frames_of(4)
    results = two_objects(frames)
    gone = replace(results[2].objects[1], mask=np.zeros(SIZE, bool))
    results[2] = replace(results[2], objects={**results[2].objects, 1: gone})
    write("coco", tmp_path / "out.json", frames, results)
    coco = COCO(str(tmp_path / "out.json"))
    capsys.readouterr()  # it prints
    assert coco.getImgIds() == [0, 1, 2, 3]
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == ["1", "big/one"]
    for frame, result in zip(frames, results, strict=True):
        [image] = coco.loadImgs(frame.frame_idx)
        assert (image["height"], image["width"], image["pts"], image["time_s"]) == (*SIZE, frame.pts, frame.time_s)
        annotations = coco.loadAnns(coco.getAnnIds(imgIds=frame.frame_idx))
        shown = {object_id: found for object_id, found in result.objects.items() if found.mask.any()}
        assert [annotation["object_id"] for annotation in annotations] == list(shown)
        for annotation, found in zip(annotations, shown.values(), strict=True):
            assert np.array_equal(coco.annToMask(annotation).astype(bool), found.mask)
            x, y, width, height = annotation["bbox"]
            assert annotation["area"] == found.mask.sum()
            assert found.mask[int(y) : int(y + height), int(x) : int(x + width)].sum() == found.mask.sum()
            assert (annotation["object_score"], annotation["predicted_iou"]) == (3.5, 0.75)
    document = json.loads((tmp_path / "out.json").read_text())
    assert coco.loadRes(document["annotations"]).getImgIds() == [0, 1, 2, 3], "also as a file of results"


def test_coco_without_pycocotools_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocotools.mask", None)
    with pytest.raises(OutputError, match=r'pip install "sam2track\[coco\]"'):
        sam2track.outputs.coco.CocoWriter(tmp_path / "out.json", info_of())
    assert not list(tmp_path.iterdir())


def test_npz_holds_masks_times_and_scores(tmp_path: Path) -> None:
    frames = frames_of(4)
    frames[3] = replace(frames[3], pts=None, time_base=None, frame_idx=123456)
    results = two_objects(frames)
    write("npz", tmp_path / "out.npz", frames, results)
    with np.load(tmp_path / "out.npz") as clip:
        assert clip["object_ids"].tolist() == ["1", "big/one"]
        assert clip["frame_idx"].tolist() == [0, 1, 2, 123456]
        np.testing.assert_array_equal(clip["time_s"], [0, 0.04, 0.08, np.nan])
        np.testing.assert_array_equal(clip["object_score"], [[3.5, np.nan], *[[3.5, 3.5]] * 3])
        np.testing.assert_array_equal(clip["predicted_iou"], np.float32([[0.75, np.nan], *[[0.75, 0.75]] * 3]))
        for frame_idx, result in zip(clip["frame_idx"], results, strict=True):
            masks = clip[f"mask_{frame_idx:05d}"]
            assert masks.dtype == bool
            np.testing.assert_array_equal(masks, [found.mask for found in result.objects.values()])


def test_npz_of_numbered_objects_has_numbers_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    frames = frames_of(2)
    for name in ("one.npz", "two.npz"):
        write("npz", tmp_path / name, frames)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz") as clip:
        assert clip["object_ids"].dtype == np.int64


# ---- outlines --------------------------------------------------------------------------------------


def rasterised(polygons: Sequence[Any], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Even-odd rule at the centres of pixels, by counting the crossings to the left of each."""
    inside = np.zeros(size, bool)
    centres = np.arange(size[1]) + 0.5
    for polygon in polygons:
        points = np.asarray(polygon, float)
        for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
            low, high = sorted((y0, y1))
            for row in range(max(0, int(np.floor(low - 0.5))), min(size[0], int(np.ceil(high + 0.5)))):
                y = row + 0.5
                if low <= y < high:
                    inside[row] ^= centres > x0 + (y - y0) * (x1 - x0) / (y1 - y0)
    return inside


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 14), st.integers(1, 14))))
def test_exact_outlines_filled_again_are_the_mask(mask: NDArray[np.bool_]) -> None:
    assert np.array_equal(rasterised(mask_polygons(mask), mask.shape), mask)


def test_outlines_run_along_the_edges_of_pixels() -> None:
    mask = np.zeros((20, 30), bool)
    mask[4:9, 10:22] = True
    [outline] = mask_polygons(mask)
    assert sorted(outline.tolist()) == [[10, 4], [10, 9], [22, 4], [22, 9]]
    mask[6, 12] = False  # a hole: a second outline
    assert len(mask_polygons(mask)) == 2


@pytest.mark.parametrize("tolerance", [0.5, 1.0, 2.0])
def test_simplified_outlines_stay_within_the_tolerance(tolerance: float) -> None:
    y, x = np.mgrid[:200, :300]
    mask = (np.hypot((x - 140) / 1.5, y - 100) < 70) & (np.hypot(x - 120, y - 100) > 20)
    exact, simple = mask_polygons(mask), mask_polygons(mask, tolerance)
    assert sum(map(len, simple)) < 0.4 * sum(map(len, exact))
    assert iou(rasterised(simple, mask.shape), mask) > 1 - 0.02 * tolerance
    for one, other in zip(exact, simple, strict=True):
        contour = other.reshape(-1, 1, 2)
        distances = [abs(cv2.pointPolygonTest(contour, point, True)) for point in one.tolist()]
        assert max(distances) <= tolerance + 1e-4


@pytest.mark.parametrize("tolerance", [0, None])
def test_polygons_document_gives_the_masks_back(tmp_path: Path, tolerance: float | None) -> None:
    frames = frames_of(3)
    results = write("polygons", tmp_path / "out.json", frames, two_objects(frames), tolerance=tolerance)
    document = PolygonDocument.model_validate_json((tmp_path / "out.json").read_text())
    assert (document.height, document.width, document.time_base, document.average_rate) == (*SIZE, "1/1000", "25")
    assert document.tolerance == (1.0 if tolerance is None else tolerance)
    assert [(frame.frame_idx, frame.pts, frame.time_s) for frame in document.frames] == [
        (frame.frame_idx, frame.pts, frame.time_s) for frame in frames
    ]
    for frame, result in zip(document.frames, results, strict=True):
        assert [one.object_id for one in frame.objects] == list(result.objects)
        for one, found in zip(frame.objects, result.objects.values(), strict=True):
            again = iou(rasterised(one.polygons, SIZE), found.mask)
            assert again == 1 if tolerance == 0 else again > 0.95  # objects of 30 pixels: half a pixel is 3 %


def test_svg_has_a_path_an_object(tmp_path: Path) -> None:
    frames = frames_of(2)
    results = write("svg", tmp_path / "out", frames, two_objects(frames), tolerance=0)
    for frame, result in zip(frames, results, strict=True):
        root = ElementTree.parse(tmp_path / "out" / f"{frame.frame_idx:05d}.svg").getroot()
        assert (root.get("viewBox"), root.get("data-time-s")) == ("0 0 96 64", f"{frame.time_s:.6f}")
        paths = list(root)
        assert [path.get("data-object-id") for path in paths] == list(map(str, result.objects))
        assert len({path.get("fill") for path in paths}) == len(paths)
        for path, found in zip(paths, result.objects.values(), strict=True):
            assert path.get("fill-rule") == "evenodd"
            outlines = [part.strip(" Z") for part in (path.get("d") or "").split("M") if part]
            polygons = [[tuple(map(float, point.split(","))) for point in part.split("L")] for part in outlines]
            assert np.array_equal(rasterised(polygons, SIZE), found.mask)


def test_outlines_of_nothing_are_empty(tmp_path: Path) -> None:
    frames = frames_of(1)
    empty = [FrameResult(0, {1: replace(blob(frames[0]), mask=np.zeros(SIZE, bool))})]
    write("polygons", tmp_path / "out.json", frames, empty)
    document = PolygonDocument.model_validate_json((tmp_path / "out.json").read_text())
    assert document.frames[0].objects[0].polygons == ()


# ---- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "schema"), [("sidecar", sidecar_schema), ("polygons", polygons_schema)])
def test_published_schemas_are_those_of_the_code(name: str, schema: Any) -> None:
    published = json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(schema()))


# ---- by name ---------------------------------------------------------------------------------------

HARD = ["overlay", "png", "coco", "npz", "svg", "polygons"]


@pytest.mark.parametrize("name", FORMATS)
def test_soft_edges_are_taken_or_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / ("out" if FORMATS[name].is_folder else f"out{Path(FORMATS[name].ending).suffix}")
    if name in HARD:
        with pytest.raises(OptionsError, match="writes hard masks only"):
            open_writer(name, path, info_of(), object_ids=[1], matte=SOFT)
    else:
        write(name, path, frames_of(1), matte=SOFT)
        assert path.exists()
    assert {file.name for file in tmp_path.iterdir()} <= {path.name}


@pytest.mark.parametrize("name", HARD)
def test_hard_masks_are_cleaned_too(tmp_path: Path, name: str) -> None:
    """Growing by 3 pixels shows in each of them."""
    frames = frames_of(1)
    path = tmp_path / ("out" if FORMATS[name].is_folder else f"out{Path(FORMATS[name].ending).suffix}")
    contents = []
    for matte in (None, MatteOptions(grow=3)):
        write(name, path, frames, matte=matte, overwrite=True)
        contents.append((path / f"00000.{'svg' if name == 'svg' else 'png'}" if path.is_dir() else path).read_bytes())
    assert contents[0] != contents[1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_wrong_extension_names_the_right_one(tmp_path: Path, name: str) -> None:
    right = "such as out" if FORMATS[name].is_folder else Path(FORMATS[name].ending).suffix
    with pytest.raises(OutputError, match=rf"out\.avi.*{right}"):
        open_writer(name, tmp_path / "out.avi", info_of(), object_ids=[1])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gif", {}, "expected one of overlay, matte"),
        ("matte", {"background": (1, 2, 3)}, "it is for cutout"),
        ("coco", {"tolerance": 1.0}, "it is for svg, polygons"),
        ("svg", {"tolerance": -1.0}, "got the tolerance -1.0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, name: str, settings: Any, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        open_writer(name, tmp_path / "out", info_of(), object_ids=[1], **settings)
    assert not list(tmp_path.iterdir())
