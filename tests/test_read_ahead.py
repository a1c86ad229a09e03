"""Reading ahead: the same items and errors in the same places, few at a time, and no thread is left."""

from __future__ import annotations

import faulthandler
import itertools
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import media
import numpy as np
import pytest
from command import ON_DISC, Command

import sam2track
from sam2track.read_ahead import read_ahead


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert readers() == []


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sam2track-read-ahead"]


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_items_come_in_order(count: int, ahead: int) -> None:
    assert list(read_ahead(iter(range(count)), ahead)) == list(range(count))


@pytest.mark.parametrize("place", [0, 1, 4])
def test_an_error_keeps_its_place(place: int) -> None:
    def items() -> Iterator[int]:
        yield from range(place)
        raise ValueError("here")

    seen: list[int] = []
    with pytest.raises(ValueError, match="here"):
        for item in read_ahead(items()):
            seen.append(item)
    assert seen == list(range(place))


def test_nothing_is_read_before_the_first_item_is_asked_for() -> None:
    made: list[int] = []
    frames = read_ahead(made.append(number) or number for number in range(9))  # type: ignore[func-returns-value]
    assert made == [] and readers() == []
    assert next(frames) == 0
    frames.close()
    del frames


def test_only_a_few_items_are_made_beforehand() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    frames = read_ahead(items(), 2)
    for number in range(5):
        assert next(frames) == number
        time.sleep(0.02)
        assert made[-1] <= number + 3  # two wait, one is in hand
    frames.close()


@pytest.mark.parametrize("ending", ["closed", "dropped", "failed", "interrupted"])
def test_the_thread_and_the_source_end_with_the_consumer(ending: str) -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    frames: Any = read_ahead(items())
    assert next(frames) == 0 and readers() != []
    if ending == "closed":
        frames.close()
    elif ending == "dropped":
        del frames
    else:
        with pytest.raises(KeyboardInterrupt if ending == "interrupted" else RuntimeError):
            _consumer(frames, interrupt=ending == "interrupted")
        del frames
    assert closed.is_set() and readers() == []


def _consumer(frames: Iterator[int], *, interrupt: bool) -> None:
    for _ in frames:
        if interrupt:
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError


def test_a_slow_source_is_waited_for_when_closing() -> None:
    def items() -> Iterator[int]:
        yield 0
        time.sleep(0.3)
        yield 1

    frames = read_ahead(items())
    next(frames)
    frames.close()
    assert readers() == []


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_a_clip_read_ahead_equals_one_in_memory(tmp_path: Path, nano: sam2track.Model, direction: Any) -> None:
    path = media.make_video(tmp_path / "clip.mp4", frames=12, options={"g": "4"})
    arrays = [frame.rgb for frame in sam2track.open_video(path)]
    found = []
    for source in (path, arrays):
        clip = sam2track.Clip(nano, source)
        clip.add_prompt([tuple(map(float, ON_DISC.split(",")))], frame_idx=6)
        found.append([(result.frame_idx, result.objects[1].mask) for result in clip.track(direction)])
    for (one_idx, one), (other_idx, other) in zip(*found, strict=True):
        assert one_idx == other_idx
        np.testing.assert_array_equal(one, other)


def test_arrays_need_no_thread(nano: sam2track.Model) -> None:
    clip = sam2track.Clip(nano, [media.numbered_picture(number, 96, 64) for number in range(3)])
    clip.add_prompt([(19.0, 42.0)])
    for _ in clip.track():
        assert readers() == []


@pytest.mark.parametrize("ending", ["close", "drop", "prompt"])
def test_a_pass_that_is_left_ends_its_thread(tmp_path: Path, nano: sam2track.Model, ending: str) -> None:
    clip = sam2track.Clip(nano, media.make_video(tmp_path / "clip.mp4", frames=30))
    clip.add_prompt([(19.0, 42.0)])
    results: Any = clip.track()
    next(results)
    assert readers() != []
    if ending == "prompt":  # while the thread reads the same video
        clip.add_prompt([(19.0, 42.0)], frame_idx=20, object_id=2)
        assert [result.frame_idx for result in results] == list(range(1, 30))
    elif ending == "close":
        results.close()
    else:
        del results
    assert readers() == []


@pytest.mark.parametrize("options", [[], ["--both"]])
def test_the_command_line_leaves_no_thread(
    sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    seen: list[int] = []
    original = sam2track.Tracker.advance

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(len(readers()))
        if len(seen) == 3:
            raise MemoryError
        return original(self, *args, **kwargs)

    media.make_video(tmp_path / "long.mp4", frames=30)
    monkeypatch.setattr(sam2track.Tracker, "advance", step)
    with pytest.raises(MemoryError):
        sam2track_("long.mp4", "--click", ON_DISC, *options)
    assert seen == [1, 1, 1]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers there")
def test_exceptions_of_signals_never_leave_it_locked() -> None:
    """They may come out of any line, also out of the queue's own."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x"

    rng = random.Random(0)
    before = signal.signal(signal.SIGALRM, interrupt)
    faulthandler.dump_traceback_later(60, exit=True)  # instead of hanging for ever
    try:
        for _ in range(600):  # the queue module's own lock was left locked within 34 to 219
            items = read_ahead(endless())
            try:
                next(items)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.004))
                for _item in items:
                    pass
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
