"""The video with an alpha channel, all objects together -> a file that editors lay over another one.

Alpha is straight (not premultiplied): colours are the source's, also where alpha is low. If an editor
asks, say so; taken for premultiplied, edges get dark or bright rims. What lies further than a margin outside is
black, so that the file does not hold what was cut out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sam2track.matte import union_alpha
from sam2track.outputs.cutout import with_alpha
from sam2track.outputs.encode import VideoCodec
from sam2track.outputs.video_file import VideoFileWriter
from sam2track.types import FrameResult, VideoFrame


class _AlphaWriter(VideoFileWriter):
    has_soft_edges = True

    def _picture(self, frame: VideoFrame, result: FrameResult) -> NDArray[np.uint8]:
        return with_alpha(frame.rgb, union_alpha(frame, result, self._matte, np.uint8))


class Prores4444Writer(_AlphaWriter):
    """ProRes 4444 in QuickTime: colours nearly lossless, alpha lossless. Large."""

    # A fixed quantiser of 2 (118 is FFmpeg's unit) takes 90 ms a 1080p frame on a core and loses 0.2 levels; searching
    # one for each slice, the default, takes 200 ms. The vendor is what Apple's own encoders write.
    codec = VideoCodec(
        encoder="prores_ks",
        picture_format="rgba",
        pixel_format="yuva444p10le",
        extensions=(".mov",),
        options={"profile": "4444", "alpha_bits": "16", "global_quality": str(2 * 118), "vendor": "apl0"},
    )


class Vp9AlphaWriter(_AlphaWriter):
    """VP9 with alpha in WebM, as browsers show it. Small, both colours and alpha lossy."""

    # Alpha is a stream of its own beside the pictures; reference frames made of several would not fit it. "Realtime"
    # is the encoder's name for its fast half: 65 instead of 110 ms a 1080p frame, files a fifth larger.
    codec = VideoCodec(
        encoder="libvpx-vp9",
        picture_format="rgba",
        pixel_format="yuva420p",
        extensions=(".webm",),
        options={"auto-alt-ref": "0", "crf": "18", "b": "0", "deadline": "realtime", "cpu-used": "5", "row-mt": "1"},
    )
