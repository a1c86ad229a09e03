"""`sam2track serve`: what an editor asks and is answered."""

from __future__ import annotations

import itertools
import json
import logging
import re
import string
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import editor
import media
import numpy as np
import pytest
from command import FRAMES, HEIGHT, ON_DISC, WIDTH, names, read_sidecar
from editor import Editor, editing, mask_of, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sam2track
import sam2track.models
from sam2track.errors import VideoDecodeError
from sam2track.serve import PROTOCOL, protocol_schema
from sam2track.serve.lines import lines
from sam2track.video import Video

DOCS = Path(__file__).parent.parent / "docs"
CLICK = [[float(number) for number in ON_DISC.split(",")]]
LONG = 30  # frames of a clip that takes a while


@pytest.fixture
def loads(tmp_path: Path, nano: sam2track.Model, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In a folder with `clip.mp4`; nano is opened once for all tests. What was loaded."""
    monkeypatch.chdir(tmp_path)
    media.make_video(tmp_path / "clip.mp4", frames=FRAMES)
    loaded: list[Any] = []

    def load(model: Any, *, device: Any, num_threads: int) -> sam2track.Model:
        loaded.append((model, device, num_threads))
        return nano

    monkeypatch.setattr(sam2track.models, "load", load)
    return loaded


@pytest.fixture
def asked(loads: list[Any]) -> Iterator[Editor]:
    with editing() as one:
        yield one


@pytest.fixture
def clip(asked: Editor) -> int:
    number: int = asked.ask("open", video="clip.mp4")["clip"]
    return number


def same(result: sam2track.FrameResult, report: dict[str, Any]) -> None:
    """A frame as the library has it, and as it was told."""
    assert [found["object_id"] for found in report["objects"]] == list(result.objects)
    for told, found in zip(report["objects"], result.objects.values(), strict=True):
        np.testing.assert_array_equal(mask_of(told["mask"]), found.mask)
        assert (told["area"], told["present"]) == (found.mask.sum(), found.present)
        assert told["object_score"] == pytest.approx(found.object_score)
        assert told["predicted_iou"] == pytest.approx(found.predicted_iou)


# -- requests -----------------------------------------------------------------------------------------------------


def test_hello_says_what_there_is(asked: Editor) -> None:
    about = asked.ask("hello")
    assert (about["protocol"], about["version"]) == (PROTOCOL, sam2track.__version__)
    assert {"overlay", "png"} <= set(about["formats"])
    documented = re.findall(r"^\| `(\w+)` \|", (DOCS / "serve.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(about["commands"]) == sorted(documented[: len(about["commands"])])


def test_clip_is_described(asked: Editor) -> None:
    info = asked.ask("open", video="clip.mp4", start=1, stop=4, options={"fill_holes": 8})
    expected = {"clip": 1, "num_frames": FRAMES, "start": 1, "stop": 4, "width": WIDTH, "height": HEIGHT}
    assert {name: info[name] for name in expected} == expected
    assert (info["average_rate"], info["model"], info["provider"]) == ("25", "nano", "CPUExecutionProvider")
    assert asked.ask("info", clip=1) == info
    asked.ask("add_prompt", clip=1, frame_idx=2, points=CLICK)
    info = asked.ask("info", clip=1)
    assert info["objects"] == [{"object_id": 1, "prompted": [2], "known": [[2, 2]]}]
    assert (info["due_forward"], info["due_backward"]) == (2, 2)


def test_preview_is_that_of_the_library(asked: Editor, clip: int, nano: sam2track.Model) -> None:
    own = sam2track.Clip(nano, "clip.mp4")
    for fields in ({"points": CLICK}, {"points": [[70, 20]], "labels": [0]}, {"box": [5, 30, 40, 55]}):
        preview = asked.ask("add_prompt", clip=clip, frame_idx=1, object_id="a", **fields)
        assert preview["frame_idx"] == 1
        own.add_prompt(frame_idx=1, object_id="a", **fields)
        same(own.result(1), {"objects": [preview["object"]]})
    for _ in range(2):
        preview = asked.ask("undo", clip=clip, frame_idx=1, object_id="a")
        own.undo(frame_idx=1, object_id="a")
        same(own.result(1), {"objects": [preview["object"]]})
    assert asked.ask("clear_frame", clip=clip, frame_idx=1, object_id="a") == {"frame_idx": 1, "object": None}
    assert asked.ask("info", clip=clip)["objects"] == []


def test_frame_by_time_and_mask_as_text(asked: Editor, clip: int) -> None:
    mask = asked.ask("add_prompt", clip=clip, points=CLICK)["object"]["mask"]
    preview = asked.ask("add_prompt", clip=clip, time_s=0.081, object_id="copy", mask=mask)
    assert preview["frame_idx"] == 2
    given_mask, found = mask_of(mask), mask_of(preview["object"]["mask"])
    assert (given_mask & found).sum() / (given_mask | found).sum() > 0.9
    assert asked.ask("add_prompt", clip=clip, points=CLICK, masks=False)["object"]["mask"] is None
    assert [one["object_id"] for one in asked.ask("remove", clip=clip, object_id="copy")["objects"]] == [1]


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_tracking_tells_of_every_frame(asked: Editor, clip: int, nano: sam2track.Model, direction: Any) -> None:
    own = sam2track.Clip(nano, "clip.mp4")
    own.add_prompt(CLICK, frame_idx=2)
    asked.ask("add_prompt", clip=clip, frame_idx=2, points=CLICK)
    progress, answer = asked.answer(asked.send("track", clip=clip, direction=direction, masks=True))
    assert answer["result"] == {"frames": len(progress)}
    for number, (result, told) in enumerate(zip(own.track(direction), progress, strict=True), 1):
        assert (told["frame"]["frame_idx"], told["done"]) == (result.frame_idx, number)
        assert told["frame"]["time_s"] == pytest.approx(result.frame_idx / 25)
        assert told["done"] <= told["total"]
        same(result, told["frame"])
    for idx in (4, 0, 3):
        same(own.result(idx), asked.ask("result", clip=clip, frame_idx=idx))
    _, answer = asked.answer(asked.send("track", clip=clip, direction=direction))
    assert answer["result"] == {"frames": 0}, "nothing is due any more"


def test_tracking_up_to_a_frame(asked: Editor, clip: int) -> None:
    asked.ask("add_prompt", clip=clip, frame_idx=1, points=CLICK)
    for direction, until, expected in (
        ("forward", 2, [1, 2]),
        ("forward", 2, []),
        ("forward", 3, [3]),
        ("backward", 1, [1]),
        ("forward", 4, [4]),
        ("backward", 0, [0]),
    ):
        progress, answer = asked.answer(asked.send("track", clip=clip, direction=direction, until=until))
        assert [told["frame"]["frame_idx"] for told in progress] == expected
        assert [told["total"] for told in progress] == [len(expected)] * len(expected)
        assert answer["result"] == {"frames": len(expected)}
    for fields in ({"until": 5}, {"until": 2, "direction": "both"}):
        assert asked.error("track", clip=clip, **fields)["field"] == "until"


def test_lost_and_found_are_told(asked: Editor) -> None:
    assert asked.ask("open", video="clip.mp4", options={"report_min_iou": 1.0})["clip"] == 1
    asked.ask("add_prompt", clip=1, points=CLICK)
    progress, _ = asked.answer(asked.send("track", clip=1))
    assert [told["frame"]["objects"][0]["present"] for told in progress] == [False] * FRAMES
    assert all(told["frame"]["objects"][0]["box"] is None for told in progress)


# -- files --------------------------------------------------------------------------------------------------------


def test_export_writes_masks_and_scores(asked: Editor, clip: int, tmp_path: Path) -> None:
    asked.ask("add_prompt", clip=clip, frame_idx=1, points=CLICK, box=[5, 30, 40, 55])
    asked.ask("add_prompt", clip=clip, frame_idx=1, points=[[70, 20]], labels=[0])
    asked.answer(asked.send("track", clip=clip))
    progress, answer = asked.answer(asked.send("export", clip=clip, path="masks", format="png", scores="masks.json"))
    assert answer["result"] == {"path": "masks", "scores": "masks.json", "frames": FRAMES, "incomplete": None}
    assert [(told["done"], told["total"]) for told in progress] == [(n, FRAMES) for n in range(1, FRAMES + 1)]
    assert names(tmp_path / "masks") == [f"{idx:05d}.png" for idx in range(FRAMES)]
    sidecar = read_sidecar(tmp_path / "masks.json")
    [prompt] = sidecar.prompts
    assert (prompt.frame_idx, prompt.labels, prompt.mask) == (1, (1, 0), None)
    assert np.array([*prompt.points, prompt.box[:2], prompt.box[2:]]) == pytest.approx(  # type: ignore[index]
        np.array([*CLICK, [70, 20], [5, 30], [40, 55]]), abs=1e-3
    )
    assert [bool(frame.objects) for frame in sidecar.frames] == [False, True, True, True, True]
    _, answer = asked.answer(asked.send("export", clip=clip, path="drawn.mp4"))
    assert answer["result"]["scores"] is None
    assert names(tmp_path) == ["clip.mp4", "drawn.mp4", "masks", "masks.json"]


def test_export_takes_edges_and_outputs_for_each_object(asked: Editor, clip: int, tmp_path: Path) -> None:
    for object_id in (1, "b"):
        asked.ask("add_prompt", clip=clip, points=[[19, 42]], object_id=object_id)
    asked.answer(asked.send("track", clip=clip))
    settings = {"format": "png-soft", "matte": {"soft": True, "shrink": 1}, "object_files": True}
    _, answer = asked.answer(asked.send("export", clip=clip, path="soft", scores="soft.json", **settings))
    assert answer["type"] == "result", answer
    levels = cv2.imread(str(tmp_path / "soft.b" / "00000.png"), cv2.IMREAD_UNCHANGED)
    assert len(np.unique(levels)) > 2 and (tmp_path / "soft.1").is_dir()
    matte = json.loads((tmp_path / "soft.json").read_text())["matte"]
    assert (matte["soft"], matte["shrink"]) == (True, 1)
    for fields, where in (
        ({"matte": {"smooth": True}}, "matte.smooth"),
        ({"matte": {"feather": -1}}, "matte"),
        ({"background": [0, 0, 256]}, "background.2"),
        ({"tolerance": -1.0}, "tolerance"),
    ):
        error = asked.error("export", clip=clip, path="other", format="cutout", **fields)
        assert error["code"] == "RequestError" and error["field"].startswith(where), error


def test_export_that_cannot_be_leaves_nothing(asked: Editor, clip: int, tmp_path: Path) -> None:
    assert asked.error("export", clip=clip, path="a.mp4")["code"] == "TrackerStateError"
    asked.ask("add_prompt", clip=clip, points=CLICK)
    for fields, code in (
        ({"path": "clip.mp4"}, "OutputError"),
        ({"path": "clip.mp4", "overwrite": True}, "OutputError"),
        ({"path": "none/a.mp4"}, "OutputError"),
        ({"path": "a.mp4", "format": "gif"}, "OptionsError"),
        ({"path": "a.mp4", "scores": "clip.mp4"}, "OutputError"),
    ):
        assert asked.error("export", clip=clip, **fields)["code"] == code
    assert names(tmp_path) == ["clip.mp4"]


def test_scores_are_not_left_alone(asked: Editor, clip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sam2track.outputs.overlay.OverlayWriter._finish", fail)
    asked.ask("add_prompt", clip=clip, points=CLICK)
    _, answer = asked.answer(asked.send("export", clip=clip, path="a.mp4", scores="a.json"))
    assert (answer["code"], "No space left" in answer["message"]) == ("OutputError", True)
    assert names(tmp_path) == ["clip.mp4"]


def test_state_is_saved_and_restored(asked: Editor, clip: int, tmp_path: Path) -> None:
    asked.ask("add_prompt", clip=clip, frame_idx=1, points=CLICK)
    asked.answer(asked.send("track", clip=clip, direction="both"))
    assert asked.ask("save", clip=clip, path="a.sam2clip") == {
        "path": "a.sam2clip",
        "scores": None,
        "frames": None,
        "incomplete": None,
    }
    assert asked.error("save", clip=clip, path="a.sam2clip")["code"] == "OutputExistsError"
    asked.ask("save", clip=clip, path="a.sam2clip", overwrite=True)
    info = asked.ask("info", clip=clip)
    objects = [asked.ask("result", clip=clip, frame_idx=idx)["objects"] for idx in range(FRAMES)]
    asked.ask("close", clip=clip)
    restored = asked.ask("restore", video="clip.mp4", path="a.sam2clip")
    assert restored == info | {"clip": 2}
    assert [asked.ask("result", clip=2, frame_idx=idx)["objects"] for idx in range(FRAMES)] == objects
    _, answer = asked.answer(asked.send("export", clip=2, path="b", format="png", scores="b.json"))
    assert answer["type"] == "result"
    [prompt] = read_sidecar(tmp_path / "b.json").prompts
    assert prompt.points[0] == pytest.approx(CLICK[0], abs=1e-3), "prompts come from the state"
    media.make_video(tmp_path / "other.mp4", frames=3)
    assert asked.error("restore", video="other.mp4", path="a.sam2clip")["code"] == "ClipStateError"
    assert asked.error("restore", video="clip.mp4", path="clip.mp4")["code"] == "ClipStateError"


def test_video_that_cannot_be_read_is_told(asked: Editor, clip: int) -> None:
    Path("text.mp4").write_text("no video")
    for video in ("text.mp4", "none.mp4", ".", "a\0b"):
        assert asked.error("open", video=video)["code"] == "VideoError"
    assert asked.error("open", video="clip.mp4", start=3, stop=2)["code"] == "FrameError"
    assert asked.ask("open", video="clip.mp4")["clip"] == clip + 1


def test_pictures_are_a_clip_too(asked: Editor, tmp_path: Path) -> None:
    for number in range(3):
        picture = media.numbered_picture(number, WIDTH, HEIGHT)[..., ::-1]
        cv2.imwrite(str(tmp_path / f"shot.{1001 + number}.png"), picture)
    info = asked.ask("open", video="shot.%04d.png", start=1)
    assert (info["num_frames"], info["start"], info["average_rate"], info["has_audio"]) == (3, 1, "24", False)
    asked.ask("add_prompt", clip=1, points=[[25, 42]])
    progress, _ = asked.answer(asked.send("track", clip=1))
    assert [told["frame"]["frame_idx"] for told in progress] == [1, 2]
    _, answer = asked.answer(asked.send("export", clip=1, path="masks", format="png"))
    assert answer["type"] == "result"
    assert names(tmp_path / "masks") == ["shot.1002.png", "shot.1003.png"]


def test_damage_is_told_with_its_frame(asked: Editor, clip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Video.frames

    def damaged(*args: Any, **options: Any) -> Iterator[sam2track.VideoFrame]:
        yield from itertools.islice(read(*args, **options), 3)
        raise VideoDecodeError("clip.mp4 cannot be read from frame 3 on", frame_idx=3)

    asked.ask("add_prompt", clip=clip, points=CLICK)
    monkeypatch.setattr(Video, "frames", damaged)
    progress, answer = asked.answer(asked.send("track", clip=clip))
    assert (len(progress), answer["code"], answer["frame_idx"]) == (3, "VideoDecodeError", 3)
    assert asked.ask("info", clip=clip)["objects"][0]["known"] == [[0, 2]], "what was tracked stays"
    _, answer = asked.answer(asked.send("export", clip=clip, path="a.mp4", scores="a.json"))
    assert (answer["result"]["frames"], "from frame 3 on" in answer["result"]["incomplete"]) == (3, True)
    assert [frame.frame_idx for frame in read_sidecar(Path("a.json")).frames] == [0, 1, 2]
    assert read_sidecar(Path("a.json")).incomplete is not None


def test_damage_of_a_file_is_told_when_it_is_opened_and_when_it_is_written(asked: Editor, tmp_path: Path) -> None:
    path = tmp_path / "cut.mov"
    media.make_video(path, codec="mjpeg", pix_fmt="yuvj420p", frames=12, container={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: media.packet_ends(path)[8] - 40])
    opened = asked.ask("open", video="cut.mov", device="cpu")
    assert opened["num_frames"] == 8 and "from frame 8" in opened["damage"]
    asked.ask("add_prompt", clip=1, points=CLICK)
    asked.answer(asked.send("track", clip=1))
    _, answer = asked.answer(asked.send("export", clip=1, path="a.mp4", scores="a.json"))
    assert answer["result"]["frames"] == 8 and "from frame 8" in answer["result"]["incomplete"]
    incomplete = read_sidecar(Path("a.json")).incomplete
    assert incomplete is not None and incomplete.frame_idx == 8
    same = {"path": "x.json", "format": "coco", "scores": "x.json"}
    assert asked.error("export", clip=1, **same)["code"] == "RequestError"
    assert asked.error("save", clip=1, path="cut.mov", overwrite=True)["code"] == "OutputError"


def test_stream_and_rate_are_chosen_when_a_source_is_opened(asked: Editor, tmp_path: Path) -> None:
    media.make_video(tmp_path / "small.mp4", frames=3, size=(64, 48))
    media.make_video(tmp_path / "large.mp4", frames=4, size=(96, 64))
    both = ["-i", tmp_path / "small.mp4", "-i", tmp_path / "large.mp4", "-map", "0:v", "-map", "1:v", "-c", "copy"]
    media.ffmpeg(*both, tmp_path / "two.mkv")
    assert [asked.ask("open", video="two.mkv", device="cpu", stream=n)["width"] for n in (0, 1)] == [64, 96]
    (tmp_path / "plates").mkdir()
    media.ffmpeg("-i", tmp_path / "small.mp4", tmp_path / "plates" / "shot.%04d.png")
    opened = asked.ask("open", video="plates", device="cpu", rate="30000/1001")
    assert opened["average_rate"] == "30000/1001"
    assert asked.error("open", video="plates", stream=1)["code"] == "VideoError"
    assert asked.error("open", video="two.mkv", rate="24")["code"] == "VideoError"
    assert asked.error("open", video="plates", rate="0")["field"] == "rate"


# -- several clips ------------------------------------------------------------------------------------------------


def test_two_clips_at_once_share_one_model(asked: Editor, clip: int, loads: list[Any], nano: sam2track.Model) -> None:
    media.make_video(Path("other.mp4"), frames=3, size=(64, 96))
    assert asked.ask("open", video="other.mp4", device="cpu")["clip"] == 2
    assert len(loads) == 1, "auto is the CPU here"
    owns = [sam2track.Clip(nano, "clip.mp4"), sam2track.Clip(nano, "other.mp4")]
    points = [CLICK, [[20, 60]]]
    for number, (own, point) in enumerate(zip(owns, points, strict=True), 1):
        asked.ask("add_prompt", clip=number, points=point)
        own.add_prompt(point)
    for until in (1, 2):
        for number in (2, 1):
            asked.answer(asked.send("track", clip=number, until=until))
    for number, own in enumerate(owns, 1):
        list(own.track())
        same(own.result(2), asked.ask("result", clip=number, frame_idx=2))
    assert asked.ask("close", clip=1) == {"frames": None}
    assert asked.error("result", clip=1, frame_idx=0)["message"] == "there is no clip 1; open are [2]"
    asked.ask("result", clip=2, frame_idx=0)
    assert asked.ask("open", video="clip.mp4")["clip"] == 3, "numbers are not used twice"
    assert len(loads) == 1


def test_models_are_let_go_with_their_last_clip(asked: Editor, clip: int, loads: list[Any]) -> None:
    asked.ask("open", video="clip.mp4", num_threads=1)
    assert len(loads) == 2
    asked.ask("close", clip=clip)  # of the first model, which another one has followed
    asked.ask("open", video="clip.mp4", num_threads=1)
    assert len(loads) == 2


# -- what is no request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "request_id", "field", "words"),
    [
        ("nonsense", None, None, "no JSON"),
        ('{"id": 1, "command": "hello"', None, None, "no JSON"),
        ("\udcff", None, None, "no JSON"),
        ("[]", None, None, "an object"),
        ("7", None, None, "an object"),
        ("{}", None, "command", "command"),
        ('{"id": 5, "command": "dance"}', 5, "command", "ask hello"),
        ('{"id": 5, "command": 3}', 5, "command", "command"),
        ('{"command": "hello"}', None, "id", "required"),
        ('{"id": null, "command": "hello"}', None, "id", "valid"),
        ('{"id": 1.5, "command": "hello"}', None, "id", "valid"),
        ('{"id": true, "command": "hello"}', None, "id", "valid"),
        ('{"id": "x", "command": "hello", "extra": 1}', "x", "extra", "not permitted"),
        ('{"id": 5, "command": "open"}', 5, "video", "required"),
        ('{"id": 5, "command": "open", "video": ""}', 5, "video", "at least 1"),
        ('{"id": 5, "command": "open", "video": "a", "start": "2"}', 5, "start", "got '2'"),
        ('{"id": 5, "command": "open", "video": "a", "device": "tpu"}', 5, "device", "got 'tpu'"),
        ('{"id": 5, "command": "open", "video": "a", "options": {"fill_hole": 1}}', 5, "options.fill_hole", "keyword"),
        ('{"id": 5, "command": "open", "video": "a", "options": {"fill_holes": -1}}', 5, "options", "expected 0"),
        ('{"id": 5, "command": "add_prompt", "clip": 1}', 5, None, "no points, no box"),
        ('{"id": 5, "command": "add_prompt", "clip": true, "points": [[1, 2]]}', 5, "clip", "got True"),
        ('{"id": 5, "command": "add_prompt", "clip": 1, "points": [[1, "x"]]}', 5, "points.0.1", "got 'x'"),
        ('{"id": 5, "command": "add_prompt", "clip": 1, "points": [[1, NaN]]}', 5, "points.0.1", "finite"),
        ('{"id": 5, "command": "remove", "clip": 1, "object_id": []}', 5, "object_id", "valid"),
        ('{"id": 5, "command": "track", "clip": 1, "direction": "up"}', 5, "direction", "got 'up'"),
        ('{"id": 5, "command": "info", "clip": 1}', 5, "clip", "no clip 1"),
        ('{"id": 5, "command": "info", "clip": ' + "9" * 5000 + "}", None, None, "no JSON"),
        ("[" * 100_000, None, None, "no JSON"),
        ('{"id": 5, "command": "' + "x" * 100_000 + '"}', 5, "command", "xxx"),
    ],
)
def test_bad_line_is_answered_and_the_process_lives_on(
    line: str, request_id: object, field: str | None, words: str
) -> None:
    requests = [line.encode("utf-8", "surrogateescape"), b'{"id": 99, "command": "hello"}']
    refusal, about = replay(requests)
    assert (refusal["type"], refusal["code"], refusal["id"]) == ("error", "RequestError", request_id)
    assert refusal["field"] == field
    assert words in refusal["message"]
    assert len(refusal["message"]) < 2010
    assert (about["id"], about["type"]) == (99, "result")


def test_line_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sam2track.serve.lines.MAX_LINE_BYTES", 200_000)
    hello = b'{"id": 1, "command": "hello"}'
    fits = b" " * (200_000 - len(hello)) + hello
    answers = replay([b" " * 200_001, hello, b"x" * 999_999, hello, fits, b"y" * 999_999])
    assert [answer["type"] for answer in answers] == ["error", "result", "error", "result", "result", "error"]
    assert "200000 bytes" in answers[0]["message"]


def test_line_that_is_too_long_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sam2track.serve.lines.MAX_LINE_BYTES", 200_000)
    chunks = itertools.chain(itertools.repeat(bytes(50_000), 400), [b"\nnext", b""])
    tracemalloc.start()
    try:
        assert list(lines(SimpleNamespace(read=lambda _: next(chunks)))) == [None, b"next"]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000, "of 20 MB"
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b""))), st.integers(1, 9))
def test_lines_are_those_that_were_written(written: list[bytes], size: int) -> None:
    data = b"\n".join(written)

    class Slow:
        """Gives a few bytes at a time."""

        def __init__(self) -> None:
            self.left = data

        def read(self, _: int) -> bytes:
            given, self.left = self.left[:size], self.left[size:]
            return given

    assert list(lines(Slow())) == [line for line in written if line.strip()]


def test_blank_lines_and_carriage_returns_do_no_harm() -> None:
    [answer] = replay([b"", b"  ", b'\t{"id": "a", "command": "hello"} \r', b"\r", b""])
    assert (answer["id"], answer["type"]) == ("a", "result")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
COMMANDS = st.sampled_from([*protocol_schema()["$defs"]["Request"]["discriminator"]["mapping"], "nonsense"])
FIELDS = st.sampled_from(
    sorted({name for part in protocol_schema()["$defs"].values() for name in part.get("properties", {})} - {"command"})
)
VALUES = JSON | st.sampled_from([1, 0, -1, "clip.mp4", "nano", "cpu", [[19.0, 42.0]], [1], True, "forward", "png"])
REQUESTS = st.builds(
    lambda command, fields, clip: {**fields, "command": command, **clip},
    COMMANDS.filter(lambda command: command not in ("export", "save", "shutdown")),  # they write files, or end it
    st.dictionaries(FIELDS, VALUES, max_size=6),
    st.just({}) | st.just({"id": 1, "clip": 1}),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(string.printable, max_size=40).map(str.encode) | st.binary(max_size=40), max_size=8))
def test_no_text_ends_the_process(loads: list[Any], texts: list[bytes]) -> None:
    given_lines = [line for text in texts for line in text.split(b"\n") if line.strip()]
    answers = replay([*texts, b'{"id": "end", "command": "hello"}'])
    assert len(answers) == len(given_lines) + 1
    assert answers[-1]["type"] == "result"


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(REQUESTS | JSON, min_size=1, max_size=8))
def test_no_request_ends_the_process(loads: list[Any], requests: list[Any]) -> None:
    opening = [{"id": 0, "command": "open", "video": "clip.mp4"}]
    answers = replay([json.dumps(request).encode() for request in [*opening, *requests, {"id": 2, "command": "hello"}]])
    finals = [answer for answer in answers if answer["type"] != "progress"]
    assert len(finals) == len(requests) + 2
    assert finals[-1]["result"]["protocol"] == PROTOCOL
    builtin = {"ValueError", "TypeError", "KeyError", "AttributeError", "IndexError", "OverflowError", "RecursionError"}
    assert not [answer for answer in finals if answer.get("code") in builtin]


def test_mistake_of_ours_is_answered_and_logged(
    asked: Editor, clip: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(sam2track.Clip, "result", fail)
    with caplog.at_level(logging.ERROR):
        error = asked.error("result", clip=clip, frame_idx=0)
    assert (error["code"], error["message"]) == ("ZeroDivisionError", "unexpected: a bug; please report it")
    assert "Traceback" in caplog.text
    assert asked.ask("info", clip=clip)["clip"] == clip


# -- cancelling ---------------------------------------------------------------------------------------------------


def test_tracking_is_cancelled_within_a_frame_and_goes_on(asked: Editor, nano: sam2track.Model) -> None:
    media.make_video(Path("long.mp4"), frames=LONG)
    asked.ask("open", video="long.mp4")
    asked.ask("add_prompt", clip=1, points=CLICK)
    tracking = asked.send("track", clip=1)
    for _ in range(3):
        assert asked.hear()["type"] == "progress"
    cancelling = asked.send("cancel", target=tracking)
    progress, answer = asked.answer(tracking)
    done = 3 + len(progress)
    assert done < LONG
    assert (answer["code"], answer["message"]) == ("CancelledError", f"cancelled after {done} of {LONG} frames")
    assert asked.answer(cancelling)[1]["result"] == {"cancelled": True}
    assert asked.ask("info", clip=1)["objects"][0]["known"] == [[0, done - 1]]
    progress, _ = asked.answer(asked.send("track", clip=1))
    assert [told["frame"]["frame_idx"] for told in progress] == list(range(done, LONG))
    own = sam2track.Clip(nano, "long.mp4")
    own.add_prompt(CLICK)
    list(own.track())
    same(own.result(LONG - 1), asked.ask("result", clip=1, frame_idx=LONG - 1))


def test_waiting_requests_are_cancelled_and_others_are_not(asked: Editor) -> None:
    media.make_video(Path("long.mp4"), frames=LONG)
    asked.ask("open", video="long.mp4")
    asked.ask("add_prompt", clip=1, points=CLICK)
    tracking = asked.send("track", clip=1)
    waiting, kept = asked.send("close", clip=1), asked.send("info", clip=1)
    cancels = [asked.send("cancel", target=target) for target in (waiting, tracking, 12345)]
    assert asked.answer(tracking)[1]["code"] == "CancelledError"
    assert asked.answer(waiting)[1]["message"] == "cancelled before it began"
    assert asked.answer(kept)[1]["type"] == "result"
    assert [asked.answer(one)[1]["result"]["cancelled"] for one in cancels] == [True, True, False]
    assert asked.ask("cancel", target=tracking) == {"cancelled": False}


def test_cancelled_export_leaves_nothing(asked: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media.make_video(Path("long.mp4"), frames=LONG)
    asked.ask("open", video="long.mp4")
    asked.ask("add_prompt", clip=1, points=CLICK)
    result = sam2track.Clip.result

    def slowly(*arguments: Any) -> sam2track.FrameResult:
        time.sleep(0.02)
        return result(*arguments)

    monkeypatch.setattr(sam2track.Clip, "result", slowly)
    exporting = asked.send("export", clip=1, path="a.mp4", scores="a.json")
    assert asked.hear()["type"] == "progress"
    asked.send("cancel", target=exporting)
    progress, answer = asked.answer(exporting)
    assert answer["code"] == "CancelledError" and len(progress) < LONG - 1
    assert asked.hear()["result"] == {"cancelled": True}
    assert names(tmp_path) == ["clip.mp4", "long.mp4"]


# -- documentation ------------------------------------------------------------------------------------------------


def test_published_schema_is_that_of_the_code() -> None:
    published = json.loads((DOCS / "serve.schema.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(protocol_schema()))


def rounded(told: Any, documented: Any, name: str = "") -> Any:
    """What was told, as far as it is documented: measures to within a little, masks by their beginning."""
    if isinstance(documented, dict) and isinstance(told, dict):
        return {key: rounded(value, documented.get(key), key) for key, value in told.items()}
    if isinstance(documented, list) and isinstance(told, list) and len(told) == len(documented):
        return [rounded(*pair, name) for pair in zip(told, documented, strict=True)]
    if name == "mask" and isinstance(told, str) and told.startswith(documented.removesuffix("…")):
        return documented
    measured = {"object_score": 0.05, "predicted_iou": 0.01, "time_s": 0.001, "area": 200, "box": 3}
    if name in measured and told == pytest.approx(documented, abs=measured[name]):
        return documented
    return documented if name in ("version", "formats") else told


def test_worked_session_is_what_happens(tmp_path: Path, example_clip: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(example_clip.read_bytes())
    text = (DOCS / "serve.md").read_text(encoding="utf-8")
    [session] = re.findall(r"^```\n(> .*?)^```", text, re.DOTALL | re.MULTILINE)
    documented = [json.loads(line[2:]) for line in session.splitlines() if line.startswith("< ")]
    with editor.edited_by(tmp_path) as (one, process):
        for line in session.splitlines():
            if line.startswith("> "):
                one.send_line(line[2:].encode())
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    told = [json.loads(line) for line in out.decode().splitlines()]
    assert rounded(told, documented) == documented
    assert names(tmp_path) == ["clip.mp4", "koi.json", "koi.mp4", "koi.sam2clip"]
