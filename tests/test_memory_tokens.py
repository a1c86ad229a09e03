"""Chosen memories -> the rows that memory attention sees: their order, their positions, their padding."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import (
    MEMORY_FRAMES,
    MEMORY_POSITION,
    POINTER_ROWS,
    POINTER_TIME_SCALE,
    SPATIAL_ROWS,
    TEMPORAL_ENCODING,
    C,
    M,
    memory_entry,
)

from sam2track.memory_bank import MemoryBank, MemoryEntry, VisibleMemory, VisiblePointer, VisibleSpatial
from sam2track.memory_tokens import normalized_differences, pack_memory, pad_memory, repeat_newest
from sam2track.types import FloatArray, MemoryTokens

ROOM = MEMORY_FRAMES * SPATIAL_ROWS
POINTER_ROOM = 16 * POINTER_ROWS
FILLS = [(spatial, pointers) for spatial in range(1, MEMORY_FRAMES + 1) for pointers in range(17)]


def times(normalized_diffs: FloatArray) -> FloatArray:
    assert normalized_diffs.dtype == np.float32
    return normalized_diffs[:, None] * POINTER_TIME_SCALE


def pack(visible: VisibleMemory) -> MemoryTokens:
    memory = pack_memory(visible, TEMPORAL_ENCODING, times)
    rows = len(visible.spatial) * SPATIAL_ROWS + len(visible.pointers) * POINTER_ROWS
    assert memory.tokens.shape == memory.position.shape == (rows, 1, M)
    assert memory.tokens.dtype == memory.position.dtype == np.float32
    assert memory.pointer_rows == len(visible.pointers) * POINTER_ROWS
    return memory


def visible_spatial(entry: MemoryEntry, temporal_row: int) -> VisibleSpatial:
    return VisibleSpatial(entry, entry.spatial, temporal_row)


def filled(spatial: int, pointers: int) -> MemoryTokens:
    """Memory of so many frames and so many pointers, newest first, no number of which is zero."""
    return pack(
        VisibleMemory(
            tuple(visible_spatial(memory_entry(100 - k), k % MEMORY_FRAMES) for k in range(spatial)),
            tuple(VisiblePointer(memory_entry(200 - k), k + 1) for k in range(pointers)),
            max_pointers=16,
        )
    )


def split(array: FloatArray, room: int = ROOM) -> tuple[FloatArray, FloatArray]:
    return array[:room], array[room:]


def test_rows_are_the_spatial_memories_in_order_then_the_pointers_in_order() -> None:
    spatial = (
        visible_spatial(memory_entry(9), 0),
        visible_spatial(memory_entry(4), 5),
        visible_spatial(memory_entry(2), 6),
    )
    pointers = (VisiblePointer(memory_entry(9), 1), VisiblePointer(memory_entry(2), 8))
    memory = pack(VisibleMemory(spatial, pointers, max_pointers=16))
    expected = [seen.entry.spatial.tokens for seen in spatial]
    expected += [seen.entry.object_pointer.reshape(POINTER_ROWS, 1, M) for seen in pointers]
    np.testing.assert_array_equal(memory.tokens, np.concatenate(expected))


def test_position_of_a_spatial_memory_is_its_own_plus_its_row_of_the_temporal_table() -> None:
    rows = [3, 0, 6, 6]
    spatial = tuple(visible_spatial(memory_entry(number), row) for number, row in enumerate(rows))
    memory = pack(VisibleMemory(spatial, (), max_pointers=16))
    for number, row in enumerate(rows):
        block = memory.position[number * SPATIAL_ROWS : (number + 1) * SPATIAL_ROWS]
        np.testing.assert_array_equal(block, MEMORY_POSITION + TEMPORAL_ENCODING[row])


def test_pointer_becomes_several_tokens_that_share_its_position() -> None:
    entry = memory_entry(5)
    memory = pack(VisibleMemory((visible_spatial(entry, 0),), (VisiblePointer(entry, 3),), max_pointers=16))
    np.testing.assert_array_equal(memory.tokens[SPATIAL_ROWS:].reshape(C), entry.object_pointer)
    time = times(np.array([3], np.float32) / np.float32(15))
    np.testing.assert_array_equal(memory.position[SPATIAL_ROWS:, 0], np.repeat(time, POINTER_ROWS, axis=0))


def test_all_pointer_times_are_asked_for_at_once_and_in_order() -> None:
    asked = []

    def record(normalized_diffs: FloatArray) -> FloatArray:
        asked.append(normalized_diffs.copy())
        return times(normalized_diffs)

    pointers = tuple(VisiblePointer(memory_entry(k), k) for k in (1, 2, 7, 30))
    pack_memory(VisibleMemory((visible_spatial(memory_entry(0), 0),), pointers, 16), TEMPORAL_ENCODING, record)
    assert len(asked) == 1
    np.testing.assert_array_equal(asked[0], np.array([1, 2, 7, 30], np.float32) / np.float32(15))


def test_without_pointers_no_times_are_asked_for() -> None:
    def refuse(normalized_diffs: FloatArray) -> FloatArray:
        raise AssertionError("there is nothing to ask")

    memory = pack_memory(VisibleMemory((visible_spatial(memory_entry(0), 6),), (), 16), TEMPORAL_ENCODING, refuse)
    assert memory.pointer_rows == 0
    assert len(memory.tokens) == SPATIAL_ROWS


def test_packing_leaves_the_remembered_arrays_alone() -> None:
    entry = memory_entry(5)
    before = entry.spatial.position.copy(), entry.spatial.tokens.copy(), entry.object_pointer.copy()
    memory = pack(VisibleMemory((visible_spatial(entry, 2),), (VisiblePointer(entry, 1),), 16))
    memory.tokens[:], memory.position[:] = -1, -1
    after = entry.spatial.position, entry.spatial.tokens, entry.object_pointer
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(("max_pointers", "divisor"), [(16, 15), (15, 14), (5, 4), (2, 1), (1, 1)])
def test_differences_are_signed_and_divided_by_one_less_than_the_most_pointers(max_pointers: int, divisor: int) -> None:
    back = [1, 2, 15, 0, 400, -3]
    differences = normalized_differences(tuple(VisiblePointer(memory_entry(0), k) for k in back), max_pointers)
    assert differences.dtype == np.float32
    np.testing.assert_array_equal(differences, np.array(back, np.float32) / np.float32(divisor))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_frames", [None, 8])
def test_backwards_gives_the_same_rows_as_forwards_on_mirrored_frames(reverse: bool, num_frames: int | None) -> None:
    """Time differences count in the direction of tracking: positive both ways."""
    bank = MemoryBank(MEMORY_FRAMES)
    for step in range(7):
        frame_idx = 7 - step if reverse else step
        bank.remember(memory_entry(frame_idx, value=step), conditioning=step == 0)
    memory = pack(bank.visible(0 if reverse else 7, reverse=reverse, num_frames=num_frames))
    divisor = np.float32(15 if num_frames is None else 7)
    expected = times(np.arange(1, 8, dtype=np.float32) / divisor)
    np.testing.assert_array_equal(memory.position[-memory.pointer_rows :: POINTER_ROWS, 0], expected)
    newest = memory_entry(0, value=6)
    np.testing.assert_array_equal(memory.tokens[:SPATIAL_ROWS], newest.spatial.tokens)
    np.testing.assert_array_equal(
        memory.tokens[-memory.pointer_rows :][:POINTER_ROWS].reshape(C), newest.object_pointer
    )


@pytest.mark.parametrize(("spatial", "pointers"), FILLS)
def test_padded_memory_is_full_and_its_mask_marks_exactly_the_real_rows(spatial: int, pointers: int) -> None:
    memory = filled(spatial, pointers)
    padded, mask = pad_memory(memory, ROOM, POINTER_ROOM)
    assert padded.tokens.shape == padded.position.shape == (ROOM + POINTER_ROOM, 1, M)
    assert padded.pointer_rows == POINTER_ROOM
    assert (mask.shape, mask.dtype) == ((ROOM + POINTER_ROOM,), np.float32)
    expected = np.zeros(ROOM + POINTER_ROOM, np.float32)
    expected[: spatial * SPATIAL_ROWS] = 1
    expected[ROOM : ROOM + pointers * POINTER_ROWS] = 1
    np.testing.assert_array_equal(mask, expected)
    for whole, part in ((padded.tokens, memory.tokens), (padded.position, memory.position)):
        assert whole.dtype == np.float32
        np.testing.assert_array_equal(whole[mask > 0], part)
        assert not whole[mask == 0].any()


@pytest.mark.parametrize(("spatial", "pointers"), FILLS)
def test_repeating_fills_every_row_with_the_newest_entry(spatial: int, pointers: int) -> None:
    memory = filled(spatial, pointers)
    full = repeat_newest(memory, ROOM, POINTER_ROOM, (SPATIAL_ROWS, POINTER_ROWS))
    assert full.tokens.shape == full.position.shape == (ROOM + POINTER_ROOM, 1, M)
    assert full.pointer_rows == POINTER_ROOM
    for whole, part in ((full.tokens, memory.tokens), (full.position, memory.position)):
        assert whole.dtype == np.float32
        for rows, real, unit in zip(
            split(whole), split(part, spatial * SPATIAL_ROWS), (SPATIAL_ROWS, POINTER_ROWS), strict=True
        ):
            np.testing.assert_array_equal(rows[: len(real)], real)
            rest = rows[len(real) :].reshape(-1, unit, 1, M)
            newest = real[:unit] if len(real) else np.zeros((unit, 1, M), np.float32)
            np.testing.assert_array_equal(rest, np.broadcast_to(newest, rest.shape))


def test_full_memory_needs_no_padding() -> None:
    memory = filled(MEMORY_FRAMES, 16)
    padded, mask = pad_memory(memory, ROOM, POINTER_ROOM)
    full = repeat_newest(memory, ROOM, POINTER_ROOM, (SPATIAL_ROWS, POINTER_ROWS))
    assert mask.all()
    for other in (padded, full):
        np.testing.assert_array_equal(other.tokens, memory.tokens)
        np.testing.assert_array_equal(other.position, memory.position)
