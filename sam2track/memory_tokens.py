"""Chosen memory entries -> the arrays that memory attention takes (numpy)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sam2track.memory_bank import VisibleMemory, VisiblePointer
from sam2track.types import FloatArray, MemoryTokens


def pack_memory(
    visible: VisibleMemory,
    temporal_encoding: FloatArray,
    encode_pointer_times: Callable[[FloatArray], FloatArray],
) -> MemoryTokens:
    """Spatial memories, then pointers split into tokens: exactly the rows that are visible.

    Args:
        visible: What the frame sees; at least one spatial memory.
        temporal_encoding: (memory_frames, M) float32, the temporal position table.
        encode_pointer_times: (n,) normalised frame differences to (n, M), the pointer_tpos graph.

    Returns:
        Tokens and positions, (rows, 1, M) each.
    """
    tokens = [memory.spatial.tokens for memory in visible.spatial]
    positions = [memory.spatial.position + temporal_encoding[memory.temporal_row] for memory in visible.spatial]
    pointer_rows = 0
    if visible.pointers:
        pointers = np.stack([pointer.entry.object_pointer for pointer in visible.pointers])
        memory_size = temporal_encoding.shape[1]
        # A pointer is wider than a memory token: it becomes several, which share its position in time.
        pieces = pointers.shape[1] // memory_size
        times = encode_pointer_times(normalized_differences(visible.pointers, visible.max_pointers))
        tokens.append(pointers.reshape(-1, 1, memory_size))
        positions.append(np.repeat(times, pieces, axis=0)[:, None, :])
        pointer_rows = len(visible.pointers) * pieces
    return MemoryTokens(np.concatenate(tokens), np.concatenate(positions), pointer_rows)


def normalized_differences(pointers: tuple[VisiblePointer, ...], max_pointers: int) -> FloatArray:
    """Signed frame differences over (max_pointers - 1): (n,) float32."""
    frames_back = np.array([pointer.frames_back for pointer in pointers], np.float32)
    return np.asarray(frames_back / np.float32(max(max_pointers - 1, 1)), np.float32)


def pad_memory(memory: MemoryTokens, spatial_rows: int, pointer_rows: int) -> tuple[MemoryTokens, FloatArray]:
    """Fills the memory up to fixed numbers of rows with zeros, to be masked out.

    Returns:
        The padded memory and its key mask: (rows,) float32, 1 for a real row, 0 for padding.
    """
    split = len(memory.tokens) - memory.pointer_rows

    def pad(array: FloatArray) -> FloatArray:
        padded = np.zeros((spatial_rows + pointer_rows, 1, array.shape[2]), np.float32)
        padded[:split] = array[:split]
        padded[spatial_rows : spatial_rows + memory.pointer_rows] = array[split:]
        return padded

    mask = pad(np.ones_like(memory.tokens))[:, 0, 0]
    return MemoryTokens(pad(memory.tokens), pad(memory.position), pointer_rows), mask


def repeat_newest(memory: MemoryTokens, spatial_rows: int, pointer_rows: int, units: tuple[int, int]) -> MemoryTokens:
    """Fills the memory by repeating its newest entries, for graphs that cannot mask padding.

    Not exact: a repeated entry weighs more. Zeros would be worse: they draw attention to nothing.

    Args:
        memory: Exact rows, newest entries first.
        spatial_rows: Rows for spatial memories in the graph.
        pointer_rows: Rows for pointers in the graph.
        units: Rows of one spatial memory (F * F) and of one pointer (C / M).
    """
    split = len(memory.tokens) - memory.pointer_rows

    def fill(array: FloatArray) -> FloatArray:
        spatial = _repeat_first(array[:split], spatial_rows, units[0])
        pointers = _repeat_first(array[split:], pointer_rows, units[1])
        return np.concatenate([spatial, pointers])

    return MemoryTokens(fill(memory.tokens), fill(memory.position), pointer_rows)


def _repeat_first(part: FloatArray, rows: int, unit: int) -> FloatArray:
    if not len(part):  # no pointer yet: nothing to repeat
        return np.zeros((rows, *part.shape[1:]), np.float32)
    return np.concatenate([part, *[part[:unit]] * ((rows - len(part)) // unit)])
