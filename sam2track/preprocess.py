"""A frame in the user's pixels -> the vision encoder's input."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from sam2track.errors import FrameError
from sam2track.spec import Constants
from sam2track.types import FloatArray, PreparedFrame, RgbArray, VideoFrame


def check_frame(rgb: RgbArray) -> RgbArray:
    """Returns the frame if it is a (height, width, 3) uint8 array with pixels.

    Raises:
        FrameError: It is not.
    """
    if not isinstance(rgb, np.ndarray):
        raise FrameError(f"got a {type(rgb).__name__} as a frame; expected a numpy array (height, width, 3) uint8, RGB")
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise FrameError(
            f"got a frame of shape {rgb.shape} and type {rgb.dtype}; expected (height, width, 3) uint8, RGB, 0 to 255"
        )
    return rgb


def frame_to_pixel_values(rgb: RgbArray, constants: Constants) -> FloatArray:
    """Squashes a frame to the model's square input (no letterbox) and normalises it.

    Args:
        rgb: (height, width, 3) uint8.
        constants: Input size, mean and standard deviation of the model.

    Returns:
        (1, 3, S, S) float32.
    """
    square = resize_frame(rgb, constants.image_size)
    mean, std = np.array(constants.image_mean, np.float32), np.array(constants.image_std, np.float32)
    scale = (1 / (255 * std)).astype(np.float32)
    shift = (mean / std).astype(np.float32)
    planes = np.empty((1, 3, *square.shape[:2]), np.float32)
    for channel, plane in enumerate(planes[0]):  # one after the other they stay in the cache
        np.multiply(square[:, :, channel].astype(np.float32), scale[channel], out=plane)
        plane -= shift[channel]
    return planes


def prepare_frame(frame: VideoFrame, constants: Constants) -> PreparedFrame:
    """The same frame with its pixel values for the model that has these constants."""
    pixel_values = frame_to_pixel_values(frame.rgb, constants)
    own = {field.name: getattr(frame, field.name) for field in fields(frame)}
    return PreparedFrame(**own, pixel_values=pixel_values)


def resize_frame(rgb: RgbArray, size: int) -> RgbArray:
    """Resizes to (size, size, 3) uint8, antialiased where it shrinks.

    The references shrink with an antialiased triangle filter (Pillow, torchvision), which OpenCV lacks. A
    Gaussian of the same variance and OpenCV's linear interpolation come closest: CAVEATS.md has the numbers.
    """
    import cv2

    sigma_y, sigma_x = (_antialias_sigma(side, size) for side in rgb.shape[:2])
    if sigma_y > 0 or sigma_x > 0:
        tiny = 1e-3  # OpenCV takes 0 for "the same as the other axis"
        rgb = np.asarray(cv2.GaussianBlur(rgb, (0, 0), max(sigma_x, tiny), sigmaY=max(sigma_y, tiny)), np.uint8)
    return np.asarray(cv2.resize(rgb, (size, size), interpolation=cv2.INTER_LINEAR), np.uint8)


def _antialias_sigma(source: int, target: int) -> float:
    """A triangle of half-width s has variance s^2 / 6; linear interpolation brings 1 / 6 of it itself."""
    scale = source / target
    return float(np.sqrt((scale**2 - 1) / 6)) if scale > 1 else 0.0
