"""`sam2track batch`: many clips, failures, going on, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import media
import numpy as np
import pytest
from command import FRAMES, HEIGHT, ON_DISC, WIDTH, Command, Run, names, read_sidecar, refused, snapshot
from editor import wait_until

import sam2track
import sam2track.models
from sam2track.batch_file import batch_schema, read_batch
from sam2track.errors import BatchError, VideoDecodeError
from sam2track.matte import MatteOptions
from sam2track.prompt_file import PromptEntry
from sam2track.video import Video

SCHEMA = Path(__file__).parent.parent / "docs" / "batch.schema.json"
CLICK = {"points": [[float(number) for number in ON_DISC.split(",")]]}
ENTRY = {"video": "clip.mp4", "prompts": [CLICK]}


def write_list(path: Path, *entries: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, "clips": entries}), encoding="utf-8")
    return path


def states(run: Run) -> list[str]:
    return [clip["state"] for clip in json.loads(run.out)["clips"]]


def frames_of(path: Path) -> list[int]:
    return [frame.frame_idx for frame in read_sidecar(path).frames]


# -- doing it -----------------------------------------------------------------------------------------------------


def test_each_clip_is_as_if_alone(sam2track_: Command, tmp_path: Path) -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:40, 20:60] = 255
    (tmp_path / "sub").mkdir()
    cv2.imwrite(str(tmp_path / "sub" / "mask.png"), mask)
    media.make_video(tmp_path / "sub" / "other.mp4", frames=4)
    (tmp_path / "sub" / "prompts.json").write_text(json.dumps({"prompts": [{"mask": "mask.png"}]}))
    write_list(
        tmp_path / "sub" / "list.json",
        {"video": "../clip.mp4", "prompts": [{"frame_idx": 2, **CLICK}], "direction": "both", "start": 1, "stop": 4},
        {"video": "other.mp4", "prompt_file": "prompts.json", "format": "png"},
        {"video": "other.mp4", "prompts": [{"object_id": "a", "mask": "mask.png"}], "output": "a.mkv", "stop_s": 0.08},
    )
    run = sam2track_("batch", "sub/list.json", "--json")
    assert run.code == 0, run.err
    summary = json.loads(run.out)
    assert (summary["done"], summary["skipped"], summary["failed"]) == (3, 0, 0)
    assert [clip["frames"] for clip in summary["clips"]] == [3, 4, 2]
    assert all(clip["frames_per_second"] > 0 for clip in summary["clips"])
    assert [Path(clip["output"]).name for clip in summary["clips"]] == ["clip.overlay.mp4", "other.masks", "a.mkv"]
    made = ["a.json", "a.mkv", "clip.overlay.json", "clip.overlay.mp4", "other.masks", "other.masks.json"]
    assert names(tmp_path / "sub") == sorted([*made, "list.json", "mask.png", "other.mp4", "prompts.json"])
    assert names(tmp_path) == ["clip.mp4", "sub"]
    options = ["--click", ON_DISC, "--frame", "2", "--both", "--start", "1", "--stop", "4"]
    assert sam2track_("clip.mp4", *options, "-o", "alone.mp4").code == 0
    alone, batched = (read_sidecar(path).frames for path in (Path("alone.json"), Path("sub/clip.overlay.json")))
    assert alone == batched
    assert read_sidecar(tmp_path / "sub" / "a.json").prompts[0].object_id == "a"


def test_model_is_loaded_once(sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = sam2track.models.load

    def count(model: Any, **options: Any) -> sam2track.Model:
        loaded.append((model, options["device"]))
        return load(model, **options)

    monkeypatch.setattr(sam2track.models, "load", count)
    write_list(tmp_path / "list.json", *({**ENTRY, "output": f"{number}.mp4"} for number in range(3)))
    assert sam2track_("batch", "list.json", "--device", "cpu").code == 0
    assert loaded == [("nano", "cpu")]


def test_failure_does_not_end_the_others_and_the_table_tells(sam2track_: Command, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    write_list(
        tmp_path / "list.json",
        {**ENTRY, "video": "none.mp4"},
        {**ENTRY, "video": "text.mp4"},
        {**ENTRY, "output": "outside.mp4", "prompts": [{"points": [[999, 1]]}]},
        {**ENTRY, "output": "late.mp4", "prompts": [{**CLICK, "frame_idx": 9}]},
        {**ENTRY, "output": "none/a.mp4"},
        ENTRY,
    )
    run = sam2track_("batch", "list.json")
    assert (run.code, run.out) == (1, "")
    heading, *rows, summary = run.err.splitlines()[-8:]
    assert heading.split() == ["frames", "a", "second"]
    assert [row.split()[0] for row in rows] == ["failed"] * 5 + ["done"]
    reasons = ("No such file", "cannot be opened", "outside the frame", "has 5 frames", "no folder")
    for row, words in zip(rows[:-1], reasons, strict=True):
        assert words in row
    assert rows[-1].split()[1] == str(FRAMES) and "clip.mp4: clip.overlay.mp4" in rows[-1]
    assert summary == "1 done, 0 skipped, 5 failed"
    assert names(tmp_path) == ["clip.mp4", "clip.overlay.json", "clip.overlay.mp4", "list.json", "text.mp4"]
    assert sam2track_("batch", "list.json", "--quiet").err == ""


def test_mistake_of_ours_is_a_failure_too(
    sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_list(tmp_path / "list.json", ENTRY)
    monkeypatch.setattr("sam2track.cli.batch_run.check", lambda *_: 1 / 0)
    run = sam2track_("batch", "list.json", "--json")
    assert (run.code, states(run)) == (1, ["failed"])
    assert json.loads(run.out)["clips"][0]["reason"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in caplog.text


def test_pictures_are_a_clip_too(sam2track_: Command, tmp_path: Path) -> None:
    folder = tmp_path / "shot"
    folder.mkdir()
    for number in range(3):
        picture = media.numbered_picture(number, WIDTH, HEIGHT)[..., ::-1]
        cv2.imwrite(str(folder / f"plate.{1001 + number}.png"), picture)
    entries = [{**ENTRY, "video": "shot"}, {**ENTRY, "video": "shot/plate.%04d.png", "format": "png"}]
    write_list(tmp_path / "list.json", *entries)
    assert states(sam2track_("batch", "list.json", "--json")) == ["done", "done"]
    assert names(tmp_path / "plate.masks") == [f"plate.{number}.png" for number in (1001, 1002, 1003)]
    assert frames_of(tmp_path / "shot.overlay.json") == frames_of(tmp_path / "plate.masks.json") == [0, 1, 2]
    assert states(sam2track_("batch", "list.json", "--json")) == ["skipped", "skipped"]


def test_of_a_damaged_video_there_is_what_lies_before(
    sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Video.frames

    def damaged(*args: Any, **options: Any) -> Iterator[sam2track.VideoFrame]:
        yield from itertools.islice(read(*args, **options), 3)
        raise VideoDecodeError("clip.mp4 cannot be read from frame 3 on", frame_idx=3)

    monkeypatch.setattr(Video, "frames", damaged)
    write_list(tmp_path / "list.json", ENTRY)
    for words in ("cannot be read from frame 3 on", "ends before frame 3"):
        run = sam2track_("batch", "list.json", "--json")
        assert (run.code, states(run)) == (1, ["failed"])
        assert words in json.loads(run.out)["clips"][0]["reason"]
        assert frames_of(tmp_path / "clip.overlay.json") == [0, 1, 2]


# -- going on -----------------------------------------------------------------------------------------------------


def test_second_run_does_what_is_missing(sam2track_: Command, tmp_path: Path) -> None:
    entries = [{**ENTRY, "prompts": [{**CLICK, "time_s": 0.04}]}, {**ENTRY, "output": "b", "format": "png", "start": 1}]
    write_list(tmp_path / "list.json", entries[0])
    assert states(sam2track_("batch", "list.json", "--json")) == ["done"]
    (tmp_path / "b").mkdir()  # empty: made beforehand
    write_list(tmp_path / "list.json", *entries)
    before = snapshot(tmp_path)
    run = sam2track_("batch", "list.json", "--json")
    assert (run.code, states(run)) == (0, ["skipped", "done"])
    assert json.loads(run.out)["clips"][0]["frames"] == FRAMES
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    (tmp_path / "clip.mp4").unlink()
    assert states(sam2track_("batch", "list.json", "--json")) == ["skipped", "skipped"], "needs no video"
    assert snapshot(tmp_path) == {name: data for name, data in after.items() if name != "clip.mp4"}


def test_overwrite_does_all_again(sam2track_: Command, tmp_path: Path) -> None:
    write_list(tmp_path / "list.json", ENTRY)
    sam2track_("batch", "list.json")
    write_list(tmp_path / "list.json", {**ENTRY, "stop": 2})
    assert states(sam2track_("batch", "list.json", "--overwrite", "--json")) == ["done"]
    assert frames_of(tmp_path / "clip.overlay.json") == [0, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": [{"points": [[20, 42]]}]}, "other prompts"),
        ({"prompts": [CLICK, CLICK]}, "other prompts"),
        ({"prompts": [{**CLICK, "frame_idx": 1}]}, "other prompts"),
        ({"prompts": [{**CLICK, "object_id": "1"}]}, "other prompts"),
        ({"start": 1}, "another range, frames 0 to 4"),
        ({"stop": 3}, "another range, frames 0 to 4"),
        ({"video": "copy.mp4", "output": "clip.overlay.mp4"}, "another video, clip.mp4"),
    ],
)
def test_what_was_made_otherwise_is_neither_skipped_nor_replaced(
    sam2track_: Command, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    write_list(tmp_path / "list.json", ENTRY)
    assert sam2track_("batch", "list.json").code == 0
    write_list(tmp_path / "list.json", {**ENTRY, **change})
    before = snapshot(tmp_path)
    run = sam2track_("batch", "list.json", "--json")
    assert (run.code, states(run)) == (1, ["failed"])
    assert words in json.loads(run.out)["clips"][0]["reason"]
    assert snapshot(tmp_path) == before


def test_half_of_an_output_and_another_model_are_no_clips_that_are_done(sam2track_: Command, tmp_path: Path) -> None:
    write_list(tmp_path / "list.json", ENTRY)
    sam2track_("batch", "list.json")
    sidecar = tmp_path / "clip.overlay.json"
    text = sidecar.read_text()
    for changed, words in (
        (text.replace('"sha256":"', '"sha256":"0'), "another model"),
        (text[:-20], "no file of scores"),
        (None, "exists alone"),
    ):
        sidecar.unlink() if changed is None else sidecar.write_text(changed)
        run = sam2track_("batch", "list.json", "--json")
        assert states(run) == ["failed"]
        assert words in json.loads(run.out)["clips"][0]["reason"]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child there")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupt_leaves_what_is_finished_and_the_next_run_goes_on(
    tmp_path: Path, example_clip: Path, name: str
) -> None:
    prompts = [{"points": [[180, 334]]}]
    write_list(
        tmp_path / "list.json",
        {"video": str(example_clip), "prompts": prompts, "output": "a.mp4", "stop": 2},
        {"video": str(example_clip), "prompts": prompts, "output": "b.mp4"},
        {"video": str(example_clip), "prompts": prompts, "output": "c.mp4", "stop": 1},
    )
    code = "import signal as s, sam2track.cli as c; s.signal(s.SIGINT, s.default_int_handler); c.main()"
    command = [sys.executable, "-c", code, "batch", "list.json", "--threads", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: "a.json" in names(tmp_path) and len(names(tmp_path)) == 5)
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (128 + getattr(signal, name), "")
    assert err.strip() == "sam2track: interrupted; 1 of 3 clips are done; the same command goes on from there"
    assert names(tmp_path) == ["a.json", "a.mp4", "list.json"]
    entries = json.loads((tmp_path / "list.json").read_text())["clips"]
    write_list(tmp_path / "list.json", entries[0], {**entries[1], "stop": 3}, entries[2])
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [clip["state"] for clip in json.loads(done.stdout)["clips"]] == ["skipped", "done", "done"]


# -- lists that cannot be used ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"video": "clip.mp4"}, "clips.1: got both or neither of prompts and prompt_file"),
        ({**ENTRY, "prompt_file": "p.json"}, "clips.1: got both or neither"),
        ({"prompts": [CLICK]}, "clips.1.video: Field required"),
        ({**ENTRY, "video": ""}, "clips.1.video"),
        ({**ENTRY, "prompts": []}, "clips.1.prompts"),
        (
            {**ENTRY, "prompts": [{"points": [[1, "x"]]}]},
            "clips.1.prompts.0.points.0.1: got 'x'; expected a number",
        ),
        ({"video": "clip.mp4", "prompt_file": "none.json"}, "clips.1.prompt_file: cannot read the prompts"),
        ({"video": "clip.mp4", "prompt_file": "bad.json"}, "clips.1.prompt_file: bad.json: prompts"),
        ({**ENTRY, "format": "gif"}, "clips.1: got the format 'gif'; expected one of overlay,"),
        ({**ENTRY, "direction": "up"}, "clips.1.direction"),
        ({**ENTRY, "start": -1}, "clips.1.start"),
        ({**ENTRY, "stop": 1.5}, "clips.1.stop"),
        ({**ENTRY, "start": 1, "start_s": 1}, "clips.1: got start and start_s"),
        ({**ENTRY, "frames": 3}, "clips.1.frames"),
        ({**ENTRY}, "clips.1: the output clip.overlay.mp4 is an output of clips.0"),
        ({**ENTRY, "output": "./clip.overlay.mp4"}, "is an output of clips.0"),
        ({**ENTRY, "output": "clip.mp4"}, "clips.1: the output clip.mp4 is the video of clips."),
        ({**ENTRY, "output": "list", "format": "png"}, "list.json is no file of scores"),
        ({"video": "clip.mp4", "prompt_file": "p.json", "output": "p.mp4"}, "p.json is no file of scores"),
        ({**ENTRY, "output": "a.json"}, "clips.1: cannot write a.json"),
        ({**ENTRY, "output": ".."}, "clips.1: got the output"),
        ({**ENTRY, "output": "foreign.mp4"}, "foreign.json is no file of scores"),
    ],
)
def test_bad_entry_is_named_before_any_work(
    sam2track_: Command, tmp_path: Path, entry: dict[str, Any], words: str
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "foreign.json").write_text("[1]")
    (tmp_path / "p.json").write_text(json.dumps({"schema_version": 1, "prompts": [CLICK]}))
    write_list(tmp_path / "list.json", ENTRY, entry)
    before = snapshot(tmp_path)
    refused(sam2track_("batch", "list.json"), 2, words)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"clips": []}', '{"schema_version": 2, "clips": [{}]}', "\0"])
def test_file_that_is_no_list_is_refused(sam2track_: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text(text)
    refused(sam2track_("batch", "list.json"), 2, "list.json: ")


def test_list_that_cannot_be_read_and_model_that_is_not_there(sam2track_: Command, tmp_path: Path) -> None:
    refused(sam2track_("batch", "none.json"), 2, "cannot read the list none.json: No such file")
    refused(sam2track_("batch", "."), 2, "cannot read the list")
    write_list(tmp_path / "list.json", ENTRY)
    refused(sam2track_("batch", "list.json", "--model", "none"), 2, "there is no model")


def test_entries_hold_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_list(tmp_path / "sub" / "list.json", {"video": "a.b.mp4", "prompts": [{"mask": "m.png"}], "format": "png"})
    monkeypatch.chdir(tmp_path)
    [entry] = read_batch("sub/list.json")
    assert entry.video == os.path.join("sub", "a.b.mp4")  # noqa: PTH118
    assert entry.output == os.path.join("sub", "a.b.masks")  # noqa: PTH118
    assert entry.prompts == (PromptEntry(mask=os.path.join("sub", "m.png")),)  # noqa: PTH118
    with pytest.raises(BatchError, match="check the path"):
        read_batch("a\0b")


def test_published_schema_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(json.dumps(batch_schema()))


def test_documented_list_is_one(tmp_path: Path) -> None:
    text = (SCHEMA.parent / "batch.md").read_text(encoding="utf-8")
    (tmp_path / "list.json").write_text(text.split("```json\n")[1].split("```")[0])
    (tmp_path / "b.json").write_text(json.dumps({"prompts": [CLICK]}))
    assert [Path(entry.output or "").name for entry in read_batch(tmp_path / "list.json")] == [
        "a.overlay.mp4", "duck.mp4", "b.masks"
    ]  # fmt: skip


def test_entries_say_what_is_done_to_masks_and_how_they_are_written(sam2track_: Command, tmp_path: Path) -> None:
    prompts = [CLICK, {**CLICK, "object_id": "b"}]
    entry = {"video": "clip.mp4", "prompts": prompts, "output": "cut.mov", "format": "prores4444"}
    more = {"matte": {"soft": True, "shrink": 2}, "object_files": True}
    write_list(tmp_path / "list.json", {**entry, **more})
    run = sam2track_("batch", "list.json", "--json")
    assert run.code == 0, run.err
    assert {"cut.1.mov", "cut.b.mov", "cut.json"} <= set(names(tmp_path))
    assert read_sidecar(tmp_path / "cut.json").matte == MatteOptions(soft=True, shrink=2)
    assert states(sam2track_("batch", "list.json", "--json")) == ["skipped"]
    write_list(tmp_path / "list.json", {**entry, **more, "matte": {"soft": True}})
    run = sam2track_("batch", "list.json", "--json")
    assert "other edges" in json.loads(run.out)["clips"][0]["reason"]
    (tmp_path / "cut.b.mov").unlink()
    assert "exists alone" in json.loads(sam2track_("batch", "list.json", "--json").out)["clips"][0]["reason"]
    write_list(tmp_path / "list.json", {**entry, "matte": {"smooth": 1}})
    refused(sam2track_("batch", "list.json"), 2, "clips.0.matte.smooth")
    write_list(tmp_path / "list.json", {**entry, "matte": {"grow": 1, "shrink": 1}})
    refused(sam2track_("batch", "list.json"), 2, "give one of them")
