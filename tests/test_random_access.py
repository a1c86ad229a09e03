"""Ranges, single frames and backward reading: always the pictures, numbers and times of reading from the start."""

from __future__ import annotations

import itertools
import random
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import media
import numpy as np
import psutil
import pytest

from sam2track import random_access, video
from sam2track.errors import FrameError, VideoDecodeError, VideoError
from sam2track.packet_index import EntryPoint, FrameIndex, index_frames
from sam2track.types import VideoFrame
from sam2track.video import open_video

FRAMES = 50
X264 = {"g": "10", "bf": "3", "preset": "veryfast"}
OPEN_GOP = {**X264, "x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
X265 = {"preset": "ultrafast", "x265-params": "keyint=10:bframes=3:open-gop=1:log-level=none:pools=1"}


def encoded(**kwargs: Any) -> Callable[[Path], object]:
    return lambda path: media.make_video(path, frames=FRAMES, **kwargs)


def copied(name: str, *arguments: str, before: tuple[str, ...] = (), **kwargs: Any) -> Callable[[Path], object]:
    """A clip of this name, then rewritten by ffmpeg without encoding again."""

    def make(path: Path) -> None:
        source = media.make_video(path.with_name("source-" + name), frames=FRAMES, **kwargs)
        media.ffmpeg(*before, "-i", source, *arguments, "-c", "copy", path)

    return make


def cut_in_front(name: str, **kwargs: Any) -> Callable[[Path], object]:
    """A transport stream that begins in the middle of a group of pictures."""

    def make(path: Path) -> None:
        data = media.make_video(path.with_name("source-" + name), frames=FRAMES, **kwargs).read_bytes()
        path.write_bytes(data[len(data) // 3 // 188 * 188 :])

    return make


def joined(path: Path) -> None:
    """Two recordings one after the other: times run back in the middle."""
    clip = media.make_video(path.with_name("source.ts"), frames=FRAMES, options=OPEN_GOP).read_bytes()
    path.write_bytes(clip + clip)


def overlapping(path: Path) -> None:
    """As `joined`, but no time comes twice, and the packets' counters run on, so that nothing gives the seam away."""
    clip = media.make_video(path.with_name("source.ts"), frames=FRAMES, options=OPEN_GOP)
    later = path.with_name("later.ts")
    media.ffmpeg("-i", clip, "-c", "copy", "-output_ts_offset", "1.013", "-muxdelay", "0", "-muxpreload", "0", later)
    data = bytearray(clip.read_bytes() + later.read_bytes())
    counters: dict[int, int] = {}
    for at in range(0, len(data), 188):
        pid = int.from_bytes(data[at + 1 : at + 3], "big") & 0x1FFF
        counters[pid] = counters.get(pid, -1) + (data[at + 3] >> 4 & 1)  # only packets with content count
        data[at + 3] = data[at + 3] & 0xF0 | counters[pid] & 0xF
    path.write_bytes(data)


def generated(*arguments: str, passes: bool = False) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        source = ("-f", "lavfi", "-i", f"testsrc2=s=96x64:r=25:d={FRAMES / 25}")
        log = ("-passlogfile", str(path.with_suffix(".log")))
        if passes:
            media.ffmpeg(*source, *arguments, "-pass", "1", *log, path)
        media.ffmpeg(*source, *arguments, *(("-pass", "2", *log) if passes else ()), path)

    return make


VPX = ("-b:v", "60k", "-g", "20", "-auto-alt-ref", "1", "-lag-in-frames", "16")
VARIABLE = [int(number * 40 + number * 37 % 11 * 3) for number in range(FRAMES)]

# What can be entered in the middle.
ENTERED: dict[str, Callable[[Path], object]] = {
    "h264.mp4": encoded(options=X264),
    "h264-open-gop.mp4": encoded(options=OPEN_GOP),
    "h264-open-gop.mkv": encoded(options=OPEN_GOP),
    "h264-open-gop.ts": encoded(options=OPEN_GOP, audio="aac"),
    "h264.flv": encoded(options=X264),
    "h264-fragments.mp4": encoded(options=X264, container={"movflags": "frag_keyframe+empty_moov"}),
    "h264-fields.ts": encoded(options={**X264, "flags": "+ilme+ildct", "x264-params": "tff=1"}),
    "hevc-open-gop.mp4": encoded(codec="libx265", options=X265),
    "hevc-open-gop.ts": encoded(codec="libx265", options=X265),
    "mpeg2.ts": encoded(codec="mpeg2video", options={"g": "10", "bf": "2"}),
    "mpeg2.mpg": encoded(codec="mpeg2video", options={"g": "10", "bf": "2"}),
    "mpeg4.avi": encoded(codec="mpeg4", options={"g": "10", "bf": "2"}),
    "mpeg4.mp4": encoded(codec="mpeg4", options={"g": "10", "bf": "2"}),
    "vp8-hidden-pictures.webm": generated("-c:v", "libvpx", *VPX, passes=True),
    "vp9-hidden-pictures.webm": generated("-c:v", "libvpx-vp9", "-cpu-used", "5", *VPX, passes=True),
    "av1.mp4": generated("-c:v", "libaom-av1", "-cpu-used", "8", "-g", "20", "-b:v", "60k"),
    "mjpeg.avi": encoded(codec="mjpeg", pix_fmt="yuvj420p"),
    "ffv1.mkv": encoded(codec="ffv1", options={"g": "5"}),
    "png.mov": encoded(codec="png", pix_fmt="rgb24"),
    "variable-rate.mp4": encoded(options=X264, pts=VARIABLE, time_base=Fraction(1, 1000)),
    "variable-rate.mkv": encoded(options=X264, pts=VARIABLE, time_base=Fraction(1, 1000)),
    "late.mkv": encoded(options=X264, pts=range(100, 100 + FRAMES)),
    "turned.mp4": copied("a.mp4", before=("-display_rotation", "90"), options=X264),
    "edit-list.mp4": copied("a.mp4", before=("-ss", "0.25"), options=X264),
    "edit-list-hevc.mp4": copied("a.mp4", before=("-ss", "0.65"), codec="libx265", options=X265),
    "times-wrap.ts": copied("a.ts", "-output_ts_offset", "95442.2", options=X264),
    "cut-in-front.ts": cut_in_front("a.ts", options=OPEN_GOP),
    "cut-in-front-hevc.ts": cut_in_front("a.ts", codec="libx265", options=X265),
    "cut-in-front-mpeg2.ts": cut_in_front("a.ts", codec="mpeg2video", options={"g": "10", "bf": "2"}),
}
# What must be read from its start.
ONLY_FROM_START: dict[str, Callable[[Path], object]] = {
    "no-times.h264": encoded(options=X264),
    "times-made-up.avi": encoded(options=X264),
    "gradual-refresh.mkv": encoded(options={"bf": "0", "x264-params": "intra-refresh=1:keyint=10"}),
    "gradual-refresh.ts": encoded(options={"bf": "0", "x264-params": "intra-refresh=1:keyint=10"}),
    "one-group.mp4": encoded(options={"g": "999", "keyint_min": "999"}),
    "painted-over.gif": generated(),
    "painted-over.apng": generated("-c:v", "apng", "-f", "apng"),
    "repeats.ogv": generated("-c:v", "libtheora", "-g", "10"),
    "palette.avi": generated("-c:v", "rawvideo", "-pix_fmt", "pal8"),
    "joined.ts": joined,
    "overlapping.ts": overlapping,
}


def keys(frames: Iterable[VideoFrame]) -> list[tuple[object, ...]]:
    return [(frame.frame_idx, frame.pts, frame.time_base, frame.rgb.tobytes()) for frame in frames]


@pytest.mark.parametrize("name", [*ENTERED, *ONLY_FROM_START])
def test_every_way_of_reading_gives_the_same_frames(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    (ENTERED | ONLY_FROM_START)[name](path)
    clip = open_video(path)
    linear = keys(clip)
    count = len(linear)
    assert clip.num_frames == count
    assert count >= 20
    entries = index_frames(path).entries
    assert bool(entries) == (name in ENTERED)
    rng = random.Random(name)
    for _ in range(8):
        start = rng.randrange(count)
        stop = start + rng.randrange(1, 12)
        assert keys(clip.frames(start, stop)) == linear[start:stop]
        assert keys(clip.frames(start, stop, reverse=True)) == linear[start:stop][::-1]
    assert keys(clip.frames(reverse=True)) == linear[::-1]
    assert keys([clip.frame(count - 1)]) == linear[-1:]
    assert keys(clip.frames(count - 3)) == linear[-3:]
    assert clip._reader.index.entries == entries  # else the index was found wrong, and all was read from the start


@pytest.mark.parametrize("name", ["h264-open-gop.mp4", "hevc-open-gop.mp4", "mpeg2.ts", "mpeg4.mp4"])
def test_the_clips_do_have_pictures_that_are_stored_behind_a_keyframe_but_shown_before_it(
    tmp_path: Path, name: str
) -> None:
    """So that the test above cannot pass for want of them."""
    path = tmp_path / name
    ENTERED[name](path)
    with av.open(str(path)) as container:
        packets = [(packet.pts, packet.is_keyframe) for packet in container.demux(video=0) if packet.size]
    keyframe_pts = itertools.accumulate(packets, lambda last, packet: packet if packet[1] else last)
    assert sum(pts < key_pts for (pts, _), (key_pts, _) in zip(packets, keyframe_pts, strict=True)) >= 3


@pytest.mark.parametrize("name", ["h264-open-gop.mp4", "h264-open-gop.ts", "vp8-hidden-pictures.webm", "edit-list.mp4"])
def test_the_count_is_that_of_ffprobe(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ENTERED[name](path)
    assert media.ffprobe_count(path) in (open_video(path).num_frames, None)


@pytest.fixture
def clip_path(tmp_path: Path) -> Path:
    return media.make_video(tmp_path / "clip.mp4", frames=60, options=X264)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each packet that reaches the decoder behind an entry point."""
    seen: list[int] = []
    original = random_access.pictures_of

    def counted(packet: Any, *args: Any) -> Any:
        seen.append(packet.size)
        return original(packet, *args)

    monkeypatch.setattr(random_access, "pictures_of", counted)
    return seen


def test_a_range_decodes_one_group_of_pictures_at_most_beside_itself(clip_path: Path, fed: list[int]) -> None:
    clip = open_video(clip_path)
    assert clip.num_frames == 60
    numbers = [media.read_number(frame.rgb) for frame in clip.frames(47, 52)]
    assert numbers == list(range(47, 52))
    assert 5 <= len(fed) <= 5 + 10 + 6


def test_reading_is_lazy(clip_path: Path, fed: list[int]) -> None:
    frames = open_video(clip_path).frames(40)
    assert fed == []
    assert next(frames).frame_idx == 40
    assert len(fed) < 10


def test_the_index_is_made_once_and_only_if_needed(clip_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(random_access, "index_frames", lambda *args: made.append(args) or index_frames(*args))
    clip = open_video(clip_path)
    assert len(list(clip)) == 60
    assert [frame.frame_idx for frame in clip.frames(0, 3)] == [0, 1, 2]
    assert clip.frame(5).frame_idx == 5
    assert made == []
    for _ in range(3):
        assert clip.frame(40).frame_idx == 40
    assert clip.num_frames == 60
    assert len(made) == 1


@pytest.mark.parametrize("ending", ["exhausted", "closed", "dropped"])
def test_the_file_is_closed_with_the_iterator(clip_path: Path, ending: str) -> None:
    process = psutil.Process()
    frames: Any = open_video(clip_path).frames(30, 40)
    next(frames)
    assert str(clip_path) in {file.path for file in process.open_files()}
    if ending == "exhausted":
        assert len(list(frames)) == 9
    elif ending == "closed":
        frames.close()
    else:
        del frames
    assert str(clip_path) not in {file.path for file in process.open_files()}


def test_reading_backwards_holds_a_bounded_number_of_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = media.make_video(tmp_path / "one-group.mp4", frames=60, options={"g": "999"})
    clip = open_video(path)
    linear = keys(clip)
    monkeypatch.setattr(video, "_HELD_BYTES", 8 * 96 * 64 * 3 + 5)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    original = video.as_displayed

    def watched(*args: Any) -> VideoFrame:
        nonlocal most
        frame = original(*args)
        alive.add(Holder(frame.rgb))
        most = max(most, len(alive))
        return frame

    class Holder:
        def __init__(self, rgb: Any) -> None:
            weakref.finalize(rgb, alive.discard, self)
            strong.append(self)

    strong: list[Holder] = []
    monkeypatch.setattr(video, "as_displayed", watched)
    assert keys(clip.frames(reverse=True)) == linear[::-1]
    assert 8 <= most <= 10  # one more while it is given out, one more while the next is made


def test_going_backwards_begins_at_entry_points_where_they_are_near(clip_path: Path) -> None:
    reader = random_access.FrameReader(clip_path)
    assert [entry.frame_idx for entry in reader.index.entries] == [10, 20, 30, 40, 50]
    assert reader.next_boundary(60, 1, 60) == 50
    assert reader.next_boundary(60, 15, 60) == 40
    assert reader.next_boundary(60, 15, 12) == 50  # nothing at a good distance: not more than allowed
    assert reader.next_boundary(60, 15, 5) == 55
    assert reader.next_boundary(10, 48, 60) == 0
    assert reader.next_boundary(1, 48, 60) == 0


def test_ranges_that_are_empty_or_reach_over_the_end(clip_path: Path) -> None:
    clip = open_video(clip_path)
    for reverse in (False, True):
        assert list(clip.frames(5, 5, reverse=reverse)) == []
        assert list(clip.frames(7, 5, reverse=reverse)) == []
        assert list(clip.frames(60, reverse=reverse)) == []
        assert list(clip.frames(100, 200, reverse=reverse)) == []
        assert sorted(frame.frame_idx for frame in clip.frames(58, 100, reverse=reverse)) == [58, 59]


def test_numbers_that_no_frame_has(clip_path: Path) -> None:
    clip = open_video(clip_path)
    with pytest.raises(FrameError, match=r"start=-1.*0 or more"):
        clip.frames(-1)
    with pytest.raises(FrameError, match="stop=-2"):
        clip.frames(0, -2, reverse=True)
    with pytest.raises(FrameError, match="no frame 60, but 60; give 0 to 59"):
        clip.frame(60)
    with pytest.raises(FrameError):
        clip.frame(-1)


def test_a_closed_video_gives_nothing_more(clip_path: Path) -> None:
    with open_video(clip_path) as clip:
        forward, backward = clip.frames(20), clip.frames(reverse=True)
        next(forward), next(backward)
    for use in (
        lambda: next(forward),
        lambda: next(backward),
        lambda: clip.num_frames,
        lambda: clip.frame(0),
        lambda: clip.frame_at(0),
        lambda: next(clip.frames(reverse=True)),
    ):
        with pytest.raises(VideoError, match="closed"):
            use()


@pytest.mark.parametrize("name", ["variable-rate.mp4", "late.mkv", "edit-list.mp4", "h264-open-gop.ts"])
def test_a_frame_is_shown_from_its_time_to_the_next_one(tmp_path: Path, name: str) -> None:
    ENTERED[name](tmp_path / name)
    clip = open_video(tmp_path / name)
    times = [frame.time_s - clip.frame(0).time_s for frame in clip]
    assert times[0] == 0
    for number, (time_s, after) in enumerate(itertools.pairwise([*times, times[-1] + 0.04])):
        assert clip.frame_at(time_s) == number
        assert clip.frame_at((time_s + after) / 2) == number
        assert clip.frame_at(after - 0.0005) == number
    for time_s in (-0.01, times[-1] + 0.5, float("nan"), float("inf")):
        with pytest.raises(FrameError, match="no frame at"):
            clip.frame_at(time_s)


def test_time_needs_times(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "no-times.h264", frames=12)
    with pytest.raises(VideoError, match=r"without a time.*0 to 11"):
        open_video(path).frame_at(0.1)


def _shifted(index: FrameIndex) -> FrameIndex:
    """As if each entry point showed the frame behind the one that it shows."""
    entries = tuple(EntryPoint(entry.packet, entry.frame_idx + 1) for entry in index.entries)
    return FrameIndex(index.frame_pts, entries, index.packets)


def _one_too_many(index: FrameIndex) -> FrameIndex:
    """As if a packet at frame 45 that shows nothing had been taken for a frame."""
    pts: list[Any] = list(index.frame_pts)
    pts.insert(45, (pts[44] + pts[45]) // 2)
    entries = tuple(EntryPoint(e.packet, e.frame_idx + (e.frame_idx >= 45)) for e in index.entries)
    return FrameIndex(pts, entries, index.packets)


@pytest.mark.parametrize("wrong", [_shifted, _one_too_many])
def test_a_wrong_index_is_found_out_and_given_up(
    clip_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[FrameIndex], FrameIndex]
) -> None:
    linear = keys(open_video(clip_path))
    monkeypatch.setattr(random_access, "index_frames", lambda *args: wrong(index_frames(*args)))
    clip = open_video(clip_path)
    assert keys(clip.frames(42, 55)) == linear[42:55]
    assert keys(clip.frames(41, 47)) == linear[41:47]
    assert keys(clip.frames(20, 40, reverse=True)) == linear[20:40][::-1]


def test_an_error_from_a_picture_whose_references_lie_before_the_entry_point_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = media.make_video(tmp_path / "clip.mp4", frames=60, options=OPEN_GOP)
    linear = keys(open_video(path))
    original = random_access.pictures_of
    first: list[int] = []
    failed = []

    def failing(packet: Any, source: Path, frame_idx: int) -> Any:
        first.append(packet.pts)
        if packet.pts is not None and packet.pts < first[0]:
            failed.append(frame_idx)
            raise VideoDecodeError("references are missing", frame_idx=frame_idx)
        return original(packet, source, frame_idx)

    monkeypatch.setattr(random_access, "pictures_of", failing)
    assert keys(open_video(path).frames(42, 47)) == linear[42:47]
    assert failed


def test_numbers_that_turn_out_wrong_after_the_first_frames_are_an_error(
    clip_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*args: Any) -> FrameIndex:
        index = index_frames(*args)
        pts = [*index.frame_pts]
        pts[5:5] = [pts[5] - 1]  # type: ignore[operator]
        del pts[48]
        return FrameIndex(pts, tuple(EntryPoint(e.packet, e.frame_idx + 1) for e in index.entries), index.packets)

    monkeypatch.setattr(random_access, "index_frames", wrong)
    frames = open_video(clip_path).frames(42, 55)
    found = []
    with pytest.raises(VideoDecodeError, match="as the packets announce"):
        found.extend(iter(lambda: next(frames), None))


def test_where_no_jump_leads_packets_are_passed_over(clip_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = keys(open_video(clip_path))
    monkeypatch.setattr(random_access, "_after_jump", lambda *_: None)
    clip = open_video(clip_path)
    assert keys(clip.frames(33, 45)) == linear[33:45]
    assert keys(clip.frames(reverse=True)) == linear[::-1]


def _damaged(tmp_path: Path) -> tuple[Path, list[int]]:
    """60 frames with a keyframe every ten, the fourth one spoilt; what linear reading gives."""
    path = media.make_video(
        tmp_path / "streamable.mp4", frames=60, options={**X264, "bf": "0"}, container={"movflags": "faststart"}
    )
    data = bytearray(path.read_bytes())
    ends = media.packet_ends(path)
    begin, end = ends[29:31]
    middle = slice((begin + end) // 2, end)
    data[middle] = bytes(byte ^ 0xFF for byte in data[middle])
    path.write_bytes(data)
    numbers, error = _until_error(open_video(path))
    assert error is not None
    assert 25 < len(numbers) <= 30
    return path, numbers


def _until_error(frames: Iterable[VideoFrame]) -> tuple[list[int], VideoDecodeError | None]:
    numbers: list[int] = []
    try:
        for frame in frames:
            numbers.append(frame.frame_idx)
    except VideoDecodeError as error:
        return numbers, error
    return numbers, None


def test_damage_in_a_range_is_raised_where_it_is(tmp_path: Path) -> None:
    path, linear = _damaged(tmp_path)
    numbers, error = _until_error(open_video(path).frames(22, 50))
    assert error is not None
    assert error.frame_idx == len(linear)
    assert numbers == list(range(22, len(linear)))
    # Damage that is not reached does no harm.
    assert _until_error(open_video(path).frames(11, 20)) == (list(range(11, 20)), None)
    assert _until_error(open_video(path).frames(42)) == (list(range(42, 60)), None)


def test_reading_a_damaged_file_backwards(tmp_path: Path) -> None:
    path, linear = _damaged(tmp_path)
    numbers, error = _until_error(open_video(path).frames(reverse=True))
    assert numbers == list(range(59, 59 - len(numbers), -1))
    assert error is not None
    assert error.frame_idx == len(linear)


@pytest.mark.parametrize("name", ["cut.mp4", "cut.mkv", "cut.ts", "cut.h264"])
@pytest.mark.parametrize("part", [0.4, 0.75, 0.97])
def test_the_frames_before_a_cut(tmp_path: Path, name: str, part: float) -> None:
    options = {"container": {"movflags": "faststart"}} if name.endswith("mp4") else {}
    path = media.make_video(tmp_path / name, frames=60, options=X264, **options)  # type: ignore[arg-type]
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    clip = open_video(path)
    linear, error = _until_error(clip)
    count = len(linear)
    assert clip.num_frames == count
    assert _until_error(clip.frames(count - 5, count))[0] == linear[-5:]
    assert _until_error(clip.frames(0, count, reverse=True)) == (linear[::-1], None)
    backwards, found = _until_error(clip.frames(reverse=True))
    if error is None:
        assert (backwards, found) == (linear[::-1], None)
    else:
        assert backwards == []
        assert found is not None
        assert found.frame_idx == error.frame_idx == count


def test_flipped_bytes_spoil_no_frame_that_is_good_in_reading_from_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = media.make_video(tmp_path / "clip.mkv", frames=60, options=X264)
    data = path.read_bytes()
    whole = dict(_while_good(open_video(path)))
    for seed in range(12):
        rng = random.Random(seed)
        spoilt = bytearray(data)
        for _ in range(1 + seed % 3 * 5):
            spoilt[rng.randrange(len(spoilt))] ^= rng.randrange(1, 256)
        path.write_bytes(spoilt)
        try:
            clip = open_video(path)
            linear = dict(_while_good(clip))
            for frames in (clip.frames(25, 45), clip.frames(35, 60, reverse=True)):
                for frame_idx, rgb in _while_good(frames):
                    # What FFmpeg makes up for a spoilt picture depends on what it read before.
                    good = frame_idx in linear and np.array_equal(linear[frame_idx], whole[frame_idx])
                    assert not good or np.array_equal(rgb, whole[frame_idx])
        except VideoError:
            continue
    assert capfd.readouterr() == ("", "")


def _while_good(frames: Iterable[VideoFrame]) -> Iterator[tuple[int, Any]]:
    try:
        for frame in frames:
            yield frame.frame_idx, frame.rgb
    except VideoDecodeError:
        return


def test_parameters_that_only_an_earlier_keyframe_brought(tmp_path: Path) -> None:
    """Behind a jump they would be missing, so such a keyframe is no entry point."""
    raw = media.make_video(tmp_path / "clip.h264", frames=30, options={**X264, "bf": "0"})
    path = tmp_path / "clip.ts"
    with av.open(str(raw)) as source, av.open(str(path), "w") as output:
        stream: Any = output.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            if packet.size:
                units = re.split(rb"\0?\0\0\x01", bytes(packet))[1:]
                kept = [unit for unit in units if number == 0 or unit[0] & 31 not in (7, 8)]
                bare = av.Packet(b"".join(b"\0\0\0\1" + unit for unit in kept))
                bare.pts = bare.dts = number * 3600
                bare.time_base = Fraction(1, 90000)
                bare.is_keyframe = False  # so that the muxer does not put them back
                bare.stream = stream
                output.mux(bare)
    clip = open_video(path)
    assert len(list(clip)) == 30
    assert index_frames(path).entries == ()
    assert keys(clip.frames(22, 28)) == keys(clip)[22:28]


@pytest.mark.parametrize("codec", ["mpeg4", "libvpx-vp9", "libsvtav1"])
def test_keyframe_marks_that_are_wrong(tmp_path: Path, codec: str) -> None:
    """Without its table of keyframes an MP4 says that every picture is one."""
    if codec not in av.codecs_available:
        pytest.skip(f"this PyAV has no {codec}")
    path = media.make_video(tmp_path / "clip.mp4", frames=60, codec=codec, options={"g": "20"})
    data = path.read_bytes()
    assert data.count(b"stss") == 1
    path.write_bytes(data.replace(b"stss", b"free"))
    if codec == "mpeg4":  # the other marks FFmpeg reads from the packets
        assert len(index_frames(path).entries) > 40
    clip = open_video(path)
    linear = keys(clip)
    assert keys(clip.frames(35, 45)) == linear[35:45]
    assert keys(clip.frames(50, reverse=True)) == linear[50:][::-1]
