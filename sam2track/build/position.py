"""Position encodings that depend on the input size alone: computed in float32 and stored as constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sam2track.types import FloatArray

TEMPERATURE = 10000.0


def sine_grid(size: int, channels: int) -> FloatArray:
    """Sine encoding of a square feature map, y then x, positions scaled to (0, 2 pi].

    Returns:
        (size * size, channels) float32.
    """
    half = channels // 2
    position = (np.arange(1, size + 1, dtype=np.float32) / np.float32(size + 1e-6)) * np.float32(2 * np.pi)
    divisor = TEMPERATURE ** (2 * (np.arange(half, dtype=np.float32) // 2) / half)
    angle = position[:, None] / divisor.astype(np.float32)  # (size, half)
    one_axis = np.empty_like(angle)
    one_axis[:, 0::2], one_axis[:, 1::2] = np.sin(angle[:, 0::2]), np.cos(angle[:, 1::2])
    y = np.broadcast_to(one_axis[:, None], (size, size, half))
    x = np.broadcast_to(one_axis[None, :], (size, size, half))
    return np.concatenate([y, x], axis=-1).reshape(size * size, channels).astype(np.float32)


def random_fourier(coordinates: FloatArray, matrix: NDArray[np.float32]) -> FloatArray:
    """The prompt encoder's encoding of points.

    Args:
        coordinates: (n, 2) float32, (x, y) in [0, 1].
        matrix: (2, channels / 2) float32, the model's random frequencies.

    Returns:
        (n, channels) float32.
    """
    angle = (2 * coordinates - 1) @ matrix * np.float32(2 * np.pi)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=-1).astype(np.float32)


def cell_centres(size: int) -> FloatArray:
    """Centres of a square grid's cells: (size * size, 2) float32, (x, y) in (0, 1), row by row."""
    centre = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
    y, x = np.meshgrid(centre, centre, indexing="ij")
    return np.stack([x, y], axis=-1).reshape(-1, 2)


def axial_rope(size: int, head_dim: int, theta: float) -> tuple[FloatArray, FloatArray]:
    """Cosines and sines of axial rotary encoding: the first half of the pairs turns with x, the second with y.

    Returns:
        Two (head_dim / 2, size * size) float32 arrays, one row a pair of channels.
    """
    frequency = (1.0 / theta ** (np.arange(0, head_dim // 2, 2, dtype=np.float32) / (head_dim // 2))).astype(np.float32)
    index = np.arange(size, dtype=np.float32)
    y, x = (grid.reshape(-1) for grid in np.meshgrid(index, index, indexing="ij"))
    angle = np.concatenate([frequency[:, None] * x, frequency[:, None] * y])
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def bicubic_resize(image: FloatArray, size: int) -> FloatArray:
    """Resizes as torch's bicubic interpolation does (a = -0.75, half-pixel centres, edges repeated).

    Args:
        image: (channels, height, width) float32.
        size: Side of the result.

    Returns:
        (channels, size, size) float32.
    """
    rows, columns = (_bicubic_matrix(side, size) for side in image.shape[1:])
    return np.asarray(np.einsum("yh,chw,xw->cyx", rows, image.astype(np.float64), columns), np.float32)


def _bicubic_matrix(source: int, target: int) -> NDArray[np.float64]:
    a = -0.75
    centre = (np.arange(target) + 0.5) * source / target - 0.5
    first = np.floor(centre).astype(int) - 1
    matrix = np.zeros((target, source))
    for tap in range(4):
        distance = np.abs(centre - (first + tap))
        near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
        column = np.clip(first + tap, 0, source - 1)
        np.add.at(matrix, (np.arange(target), column), np.where(distance <= 1, near, far))
    return matrix
