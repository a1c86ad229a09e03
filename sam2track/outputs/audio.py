"""The source's audio -> an output container: packets copied as they are, shifted with the pictures."""

from __future__ import annotations

import io
import logging
from collections.abc import Generator
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import av
    import av.container
    import av.stream

logger = logging.getLogger("sam2track")

# How far pictures may run ahead of the sound in the source's interleaving before we stop looking, seconds.
_SKEW_S = 1


class AudioCopy:
    """Copies audio packets beside the pictures that are being written, a little at a time.

    Time 0 of the output is the first written picture. Sound from before it, and after the last written
    picture if the source goes on, is left out; if the source's pictures end there, all of the rest is kept.
    """

    def __init__(self, source: Path, output: av.container.OutputContainer, container_format: str) -> None:
        """Add an output stream for each audio stream that the container can hold."""
        import av

        self._output = output
        # A negative time would make this muxer shift the pictures as well.
        self._may_start_early = container_format != "matroska"
        self._source = av.open(str(source.absolute()), metadata_errors="replace")
        self._streams: dict[int, av.AudioStream] = {}
        for stream in self._source.streams.audio:
            if _fits(stream, container_format):
                copy = output.add_stream_from_template(stream)
                if stream.language:
                    copy.metadata["language"] = stream.language
                self._streams[stream.index] = copy
            else:
                codec = stream.codec_context.name if stream.codec_context else "unknown"
                logger.warning("%s: audio (%s) left out, %s cannot hold it", source, codec, container_format)
        self._last_dts: dict[int, int] = {}
        self._start = Fraction(0)
        self._latest_picture: Fraction | None = None
        self._packets = self._read()
        self._held: av.Packet[av.stream.Stream] | None = next(self._packets, None)

    def start_at(self, start: Fraction) -> None:
        """Say which time in the source (seconds) is time 0 of the output."""
        self._start = start

    def copy_until(self, end: Fraction) -> None:
        """Copy the sound that begins before `end` (seconds in the source)."""
        while (packet := self._held) is not None:
            is_audio = packet.stream_index in self._streams
            # Pictures are stored in decoding order, so it is by dts that they tell how far the file is read.
            reached = _time(packet) if is_audio else (packet.dts or 0) * packet.time_base - _SKEW_S
            if reached >= end:
                return
            if is_audio:
                self._mux(packet)
            self._held = next(self._packets, None)

    def finish(self, last: Fraction, end: Fraction) -> None:
        """Copy the rest; `last` and `end` are where the last written picture begins and ends."""
        self.copy_until(end)
        rest: list[av.Packet[av.stream.Stream]] = []
        while (packet := self._held) is not None and not self._goes_on_after(last):
            if packet.stream_index in self._streams:
                rest.append(packet)
            self._held = next(self._packets, None)
        if not self._goes_on_after(last):
            for packet in rest:
                self._mux(packet)
        self.close()

    def close(self) -> None:
        """Close the source."""
        self._held = None
        self._packets.close()  # before the file that it reads
        self._source.close()

    def _goes_on_after(self, last: Fraction) -> bool:
        return self._latest_picture is not None and self._latest_picture > last

    def _read(self) -> Generator[av.Packet[av.stream.Stream], None, None]:
        if not self._streams:
            return
        audio = [stream for stream in self._source.streams.audio if stream.index in self._streams]
        try:
            for packet in self._source.demux(*self._source.streams.video, *audio):
                if packet.pts is None or packet.dts is None:
                    continue  # the empty packets at the end
                if packet.stream_index not in self._streams and not packet.is_discard:
                    self._latest_picture = max(self._latest_picture or _time(packet), _time(packet))
                yield packet
        except Exception as error:  # PyAV raises builtin exceptions too
            logger.warning("%s: audio ends early, it cannot be read further: %s", self._source.name, error)

    def _mux(self, packet: av.Packet[av.stream.Stream]) -> None:
        if packet.pts is None or packet.dts is None:
            return
        begin = _time(packet) - self._start
        end = begin + (packet.duration or 0) * packet.time_base
        # The packet before the first audible one stays: decoders need it to warm up.
        if begin < 0 and (end < 0 or not self._may_start_early):
            return
        shift = round(self._start / packet.time_base)
        packet.pts -= shift
        packet.dts -= shift
        last = self._last_dts.get(packet.stream_index)
        if last is not None and packet.dts <= last:
            return  # the source's clock jumps back, where recordings were joined; no container can hold that
        self._last_dts[packet.stream_index] = packet.dts
        packet.stream = self._streams[packet.stream_index]
        self._output.mux(packet)


def _time(packet: av.Packet[av.stream.Stream]) -> Fraction:
    return (packet.pts or 0) * packet.time_base


def _fits(stream: av.AudioStream, container_format: str) -> bool:
    """Ask the muxer itself, by writing a header to memory: its list of codecs is not all it checks."""
    import av

    if stream.codec_context is None:
        return False
    try:
        with av.open(io.BytesIO(), "w", format=container_format) as trial:
            trial.add_stream_from_template(stream)
            trial.start_encoding()
    except Exception:  # whatever the muxer has against it
        return False
    return True
