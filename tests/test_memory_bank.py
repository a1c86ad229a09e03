"""What a frame sees of the past, against the reference's rules written out once more, the long way round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from fakes import MEMORY_FRAMES, memory_entry
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sam2track.memory_bank import MemoryBank, VisibleMemory, max_object_pointers
from sam2track.types import MaskOutcome

POINTERS = 16
examples = settings(deadline=None, max_examples=200)


@dataclass
class Reference:
    """The store of the reference, which forgets nothing: which frames were prompted, and which tracked.

    The rules are those of `_gather_memory_frame_outputs`, `_build_memory_attention_inputs` and
    `_get_object_pointers` in transformers' `modeling_sam2_video.py`, with no limit on prompted frames.
    """

    prompted: set[int] = field(default_factory=set)
    tracked: set[int] = field(default_factory=set)

    def spatial(self, frame_idx: int, *, reverse: bool) -> Counter[tuple[int, int]]:
        """(frame, row of the temporal table) of every spatial memory."""
        found: list[tuple[int, int]] = [(0, prompted) for prompted in self.prompted]
        for offset in range(MEMORY_FRAMES - 1, 0, -1):
            previous = frame_idx + offset if reverse else frame_idx - offset
            if previous in self.tracked:
                found.append((offset, previous))
        table = list(range(MEMORY_FRAMES))
        return Counter((frame, table[offset - 1]) for offset, frame in found)  # offset 0 takes the last row

    def pointers(self, frame_idx: int, *, reverse: bool, num_frames: int | None) -> Counter[tuple[int, int]]:
        """(frame, signed difference in time) of every object pointer."""
        most = self.most_pointers(num_frames)
        found: list[tuple[int, int]] = []
        for prompted in self.prompted:
            if (prompted >= frame_idx) if reverse else (prompted <= frame_idx):
                found.append((prompted, (frame_idx - prompted) * (-1 if reverse else 1)))
        for offset in range(1, most):
            other = frame_idx + offset if reverse else frame_idx - offset
            if other < 0 or (num_frames is not None and other >= num_frames):
                break
            if other in self.tracked:
                found.append((other, offset))
        return Counter(found)

    @staticmethod
    def most_pointers(num_frames: int | None) -> int:
        return POINTERS if num_frames is None else min(num_frames, POINTERS)


def spatial_of(visible: VisibleMemory) -> Counter[tuple[int, int]]:
    return Counter((seen.entry.frame_idx, seen.temporal_row) for seen in visible.spatial)


def pointers_of(visible: VisibleMemory) -> Counter[tuple[int, int]]:
    return Counter((seen.entry.frame_idx, seen.frames_back) for seen in visible.pointers)


def assert_as_reference(
    bank: MemoryBank, reference: Reference, frame_idx: int, *, reverse: bool, num_frames: int | None
) -> None:
    visible = bank.visible(frame_idx, reverse=reverse, num_frames=num_frames)
    assert spatial_of(visible) == reference.spatial(frame_idx, reverse=reverse)
    assert pointers_of(visible) == reference.pointers(frame_idx, reverse=reverse, num_frames=num_frames)
    assert visible.max_pointers == reference.most_pointers(num_frames)


def remember(bank: MemoryBank, reference: Reference, frame_idx: int, *, conditioning: bool) -> None:
    bank.remember(memory_entry(frame_idx), conditioning=conditioning)
    (reference.prompted if conditioning else reference.tracked).add(frame_idx)
    if conditioning:
        reference.tracked.discard(frame_idx)


def bank_with(prompted: list[int], tracked: list[int]) -> MemoryBank:
    bank = MemoryBank(MEMORY_FRAMES)
    for frame_idx in prompted:
        bank.remember(memory_entry(frame_idx), conditioning=True)
    for frame_idx in tracked:
        bank.remember(memory_entry(frame_idx), conditioning=False)
    return bank


steps = st.lists(st.one_of(st.just(1), st.integers(1, 20)), min_size=1, max_size=60)


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[int], set[int], bool, int | None]:
    """One pass through a clip: frames in the order of tracking, gaps, prompted frames, direction, length if known."""
    gaps = draw(steps)
    forward = [sum(gaps[: number + 1]) - gaps[0] for number in range(len(gaps))]
    length = forward[-1] + 1 + draw(st.integers(0, 20))
    reverse = draw(st.booleans())
    order = [length - 1 - frame_idx for frame_idx in forward] if reverse else forward
    anywhere = st.sets(st.integers(0, length - 1), max_size=12)
    prompted = {order[0]} | draw(anywhere) | draw(st.sets(st.sampled_from(order), max_size=3))
    return order, prompted, reverse, draw(st.sampled_from([None, length]))


@examples
@given(passes())
@example((list(range(20)), {0}, False, 20))
@example((list(range(19, -1, -1)), {19}, True, None))
@example(([0, 1, 2], {0, 2}, False, 3))
def test_every_frame_of_a_pass_sees_what_the_reference_shows(
    case: tuple[list[int], set[int], bool, int | None],
) -> None:
    order, prompted, reverse, num_frames = case
    bank, reference = MemoryBank(MEMORY_FRAMES), Reference()
    for frame_idx in sorted(prompted):  # all prompts first, as before a pass
        remember(bank, reference, frame_idx, conditioning=True)
    for frame_idx in order:
        if frame_idx not in prompted:
            assert_as_reference(bank, reference, frame_idx, reverse=reverse, num_frames=num_frames)
            remember(bank, reference, frame_idx, conditioning=False)


@examples
@given(passes(), st.data())
def test_prompts_that_come_while_tracking_are_seen_as_in_the_reference(
    case: tuple[list[int], set[int], bool, int | None], data: st.DataObject
) -> None:
    order, prompted, reverse, num_frames = case
    bank, reference = MemoryBank(MEMORY_FRAMES), Reference()
    remember(bank, reference, order[0], conditioning=True)
    for frame_idx in order[1:]:
        assert_as_reference(bank, reference, frame_idx, reverse=reverse, num_frames=num_frames)
        remember(bank, reference, frame_idx, conditioning=frame_idx in prompted)
        if data.draw(st.booleans()):  # a correction of any earlier frame, or a prompt on a later one
            remember(bank, reference, data.draw(st.integers(0, max(order))), conditioning=True)


@pytest.mark.parametrize("reverse", [False, True])
def test_correction_of_the_frame_tracked_last_sees_what_the_reference_shows(reverse: bool) -> None:
    order = list(range(29, -1, -1)) if reverse else list(range(30))
    bank, reference = MemoryBank(MEMORY_FRAMES), Reference()
    remember(bank, reference, order[0], conditioning=True)
    for frame_idx in order[1:]:
        remember(bank, reference, frame_idx, conditioning=False)
        assert_as_reference(bank, reference, frame_idx, reverse=reverse, num_frames=None)


@examples
@given(passes())
def test_backwards_is_forwards_on_mirrored_frame_numbers(case: tuple[list[int], set[int], bool, int | None]) -> None:
    order, prompted, reverse, num_frames = case
    bank, mirrored = MemoryBank(MEMORY_FRAMES), MemoryBank(MEMORY_FRAMES)
    for frame_idx in order:
        for target, index in ((bank, frame_idx), (mirrored, -frame_idx)):
            target.remember(memory_entry(index), conditioning=frame_idx in prompted)
    for frame_idx in (order[-1] + (-1 if reverse else 1), order[len(order) // 2]):
        here = bank.visible(frame_idx, reverse=reverse, num_frames=num_frames)
        there = mirrored.visible(-frame_idx, reverse=not reverse, num_frames=num_frames)
        assert [(seen.entry.frame_idx, seen.temporal_row) for seen in here.spatial] == [
            (-seen.entry.frame_idx, seen.temporal_row) for seen in there.spatial
        ]
        assert [(seen.entry.frame_idx, seen.frames_back) for seen in here.pointers] == [
            (-seen.entry.frame_idx, seen.frames_back) for seen in there.pointers
        ]


def test_order_is_recent_frames_newest_first_then_prompted_ones_nearest_first() -> None:
    bank = bank_with([40, 0, 33], [*range(20, 30)])
    visible = bank.visible(30)
    assert [seen.entry.frame_idx for seen in visible.spatial] == [29, 28, 27, 26, 25, 24, 33, 40, 0]
    assert [seen.entry.frame_idx for seen in visible.pointers] == [*range(29, 19, -1), 0]
    assert bank.visible(29).pointers[0].entry.frame_idx == 28, "a frame does not see itself"


def test_prompted_frame_sees_its_own_earlier_prompt_when_it_is_corrected() -> None:
    visible = bank_with([0, 8], [*range(1, 8)]).visible(8)
    assert (8, 6) in spatial_of(visible)
    assert (8, 0) in pointers_of(visible)


@pytest.mark.parametrize(
    ("num_frames", "expected"), [(None, 16), (1, 1), (2, 2), (15, 15), (16, 16), (17, 16), (9999, 16)]
)
def test_short_clip_has_fewer_pointers_and_a_stream_has_sixteen(num_frames: int | None, expected: int) -> None:
    assert max_object_pointers(num_frames) == expected
    visible = bank_with([0], [*range(1, 40)]).visible(40, num_frames=num_frames)
    assert visible.max_pointers == expected
    assert max(seen.frames_back for seen in visible.pointers[:-1] or visible.pointers) in (expected - 1, 40)
    assert len(visible.pointers) == expected


def test_bank_is_bounded_over_ten_thousand_steps() -> None:
    bank = bank_with([0], [])
    for frame_idx in range(1, 10_001):
        bank.remember(memory_entry(frame_idx), conditioning=False)
        assert len(bank.recent) <= POINTERS
        assert len(bank.conditioning) == 1


@examples
@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=120))
def test_bank_is_bounded_whatever_the_order_of_frames(remembered: list[tuple[int, bool]]) -> None:
    bank = MemoryBank(MEMORY_FRAMES)
    for frame_idx, conditioning in remembered:
        bank.remember(memory_entry(frame_idx), conditioning=conditioning)
        assert len(bank.recent) <= 2 * POINTERS, "those before and those after the frame remembered last"
    assert set(bank.conditioning) == {frame_idx for frame_idx, conditioning in remembered if conditioning}


@dataclass
class Limited:
    """Which prompted frames count as such, rule 17 the long way round: the earliest, and the nearest others."""

    limit: int | None

    def split(self, prompted: set[int], frame_idx: int, *, reverse: bool) -> tuple[list[int], list[int]]:
        """The chosen ones, nearest first, and the others."""
        chosen: list[int] = []
        if self.limit is None or len(prompted) <= self.limit:
            chosen = list(prompted)
        else:
            chosen.append(min(prompted))
            while len(chosen) < self.limit:
                left = [idx for idx in prompted if idx not in chosen]
                closest = min(abs(idx - frame_idx) for idx in left)
                tied = [idx for idx in left if abs(idx - frame_idx) == closest]
                chosen.append(max(tied) if reverse else min(tied))  # the one behind
        return chosen, sorted(prompted - set(chosen))


@examples
@given(passes(), st.sampled_from([None, 1, 2, 3, 4, 9]))
def test_limited_prompted_frames_are_the_earliest_and_the_nearest_and_others_are_recent_ones(
    case: tuple[list[int], set[int], bool, int | None], limit: int | None
) -> None:
    order, prompted, reverse, num_frames = case
    bank = MemoryBank(MEMORY_FRAMES, max_conditioning_frames=limit)
    for frame_idx in sorted(prompted):
        bank.remember(memory_entry(frame_idx), conditioning=True)
    tracked: set[int] = set()
    for frame_idx in order:
        if frame_idx in prompted:
            continue
        chosen, others = Limited(limit).split(prompted, frame_idx, reverse=reverse)
        # The reference with the others as if they had been tracked.
        reference = Reference(set(chosen), tracked | set(others))
        assert_as_reference(bank, reference, frame_idx, reverse=reverse, num_frames=num_frames)
        bank.remember(memory_entry(frame_idx), conditioning=False)
        tracked.add(frame_idx)


@examples
@given(passes(), st.integers(-30, 30), st.sampled_from([None, 1, 4, 12]))
def test_fixed_shapes_leave_out_the_oldest_and_never_exceed_their_room(
    case: tuple[list[int], set[int], bool, int | None], away: int, limit: int | None
) -> None:
    order, prompted, reverse, num_frames = case
    room = MEMORY_FRAMES if limit is None else min(limit, MEMORY_FRAMES)
    free = MemoryBank(MEMORY_FRAMES, max_conditioning_frames=room)
    fixed = MemoryBank(MEMORY_FRAMES, max_conditioning_frames=limit)
    for bank in (free, fixed):
        for frame_idx in [*sorted(prompted), *(idx for idx in order if idx not in prompted)]:
            bank.remember(memory_entry(frame_idx), conditioning=frame_idx in prompted)
    frame_idx = order[-1] + away
    everything = free.visible(frame_idx, reverse=reverse, num_frames=num_frames)
    visible = fixed.visible(frame_idx, reverse=reverse, num_frames=num_frames, fixed_shapes=True)
    assert visible.max_pointers == everything.max_pointers
    chosen, _ = Limited(room).split(prompted, frame_idx, reverse=reverse)
    for shown, whole, places in (
        (visible.spatial, everything.spatial, MEMORY_FRAMES),
        (visible.pointers, everything.pointers, POINTERS),
    ):
        indices, wanted = ([seen.entry.frame_idx for seen in some] for some in (shown, whole))
        kept = [idx for idx in wanted if idx in chosen]
        recent = [idx for idx in wanted if idx not in chosen]
        assert indices == [*recent[: places - len(kept)], *kept], "prompted frames come before recent ones"


@pytest.mark.parametrize("reverse", [False, True])
def test_doubtful_frames_are_kept_out_and_the_nearest_others_take_their_place(reverse: bool) -> None:
    bank = MemoryBank(MEMORY_FRAMES, min_iou=0.6)
    order = list(range(60, 0, -1)) if reverse else list(range(60))
    bank.remember(memory_entry(order[0]), conditioning=True)
    reliable = [order[k] for k in (1, 2, 3, 5, 8, 9, 30)]
    for frame_idx in order[1:40]:
        iou, score = (0.7, 1.0) if frame_idx in reliable else ((0.5, 1.0) if frame_idx % 2 else (0.9, -1.0))
        outcome = MaskOutcome(memory_entry(frame_idx).outcome.mask_logits, predicted_iou=iou, object_score=score)
        bank.remember(replace(memory_entry(frame_idx), outcome=outcome), conditioning=False)
    visible = bank.visible(order[40], reverse=reverse)
    newest_first = reliable[::-1][: MEMORY_FRAMES - 1]
    assert [(seen.entry.frame_idx, seen.temporal_row) for seen in visible.spatial] == [
        *((frame_idx, row) for row, frame_idx in enumerate(newest_first)),
        (order[0], MEMORY_FRAMES - 1),
    ]
    assert [(seen.entry.frame_idx, seen.frames_back) for seen in visible.pointers] == [(order[30], 10), (order[0], 40)]
    assert bank.entry(order[39]) is not None, "a doubtful frame is known, so that it can be corrected"
    assert len(bank.recent) <= POINTERS + MEMORY_FRAMES


@examples
@given(passes())
def test_keeping_doubtful_frames_out_changes_nothing_where_there_is_no_doubt(
    case: tuple[list[int], set[int], bool, int | None],
) -> None:
    order, _, reverse, num_frames = case
    order = list(range(order[0], order[0] + len(order))) if not reverse else list(range(len(order) - 1, -1, -1))
    plain, choosy = MemoryBank(MEMORY_FRAMES), MemoryBank(MEMORY_FRAMES, min_iou=0.5)
    for number, frame_idx in enumerate(order):
        if number:
            seen = [bank.visible(frame_idx, reverse=reverse, num_frames=num_frames) for bank in (plain, choosy)]
            assert spatial_of(seen[0]) == spatial_of(seen[1])
            assert pointers_of(seen[0]) == pointers_of(seen[1])
        for bank in (plain, choosy):
            bank.remember(memory_entry(frame_idx), conditioning=number == 0)


def test_entry_known_by_its_pointer_only_is_no_spatial_memory() -> None:
    bank = bank_with([0], [1])
    bank.put_back(replace(memory_entry(2), spatial=None))
    visible = bank.visible(3)
    assert [seen.entry.frame_idx for seen in visible.spatial] == [1, 0]
    assert [seen.entry.frame_idx for seen in visible.pointers] == [2, 1, 0]


def test_put_back_forgets_nothing_and_forget_forgets_one() -> None:
    bank = bank_with([0], [*range(80, 100)])
    before = set(bank.recent)
    bank.put_back(memory_entry(3))
    assert set(bank.recent) == before | {3}
    bank.forget(3)
    bank.forget(0)
    bank.forget(12345)
    assert (set(bank.recent), set(bank.conditioning)) == (before, set())


def test_correction_replaces_what_was_tracked_there() -> None:
    bank = bank_with([0], [1, 2, 3])
    correction = memory_entry(2, value=99)
    bank.remember(correction, conditioning=True)
    assert (set(bank.conditioning), set(bank.recent)) == ({0, 2}, {1, 3})
    assert bank.entry(2) is correction
    visible = bank.visible(4)
    assert [seen.entry for seen in visible.spatial if seen.entry.frame_idx == 2] == [correction]
    assert spatial_of(visible)[(2, MEMORY_FRAMES - 1)] == 1
    assert pointers_of(visible)[(2, 2)] == 1
    again = memory_entry(2, value=100)
    bank.remember(again, conditioning=True)
    assert bank.entry(2) is again


def test_entry_prefers_the_prompted_frame() -> None:
    bank = bank_with([0], [0])
    assert bank.entry(0) is bank.conditioning[0]


def test_frame_tracked_again_replaces_itself() -> None:
    bank = bank_with([0], [1, 2, 3])
    again = memory_entry(2, value=7)
    bank.remember(again, conditioning=False)
    assert bank.entry(2) is again
    assert set(bank.recent) == {1, 2, 3}


def test_entry_of_an_unknown_frame_is_none() -> None:
    bank = bank_with([0], [1])
    assert bank.entry(2) is None
    assert bank.entry(0) is bank.conditioning[0]


def test_recent_frames_out_of_reach_are_forgotten_and_prompted_ones_are_not() -> None:
    bank = bank_with([0, 3], [1, 2, 60])
    assert set(bank.recent) == {60}
    assert set(bank.conditioning) == {0, 3}
