"""Live sources: what counts as one, frames as they come, what an end and a lost connection look like."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import media
import numpy as np
import psutil
import pytest

from sam2track import stream as stream_module
from sam2track.decoding import damaged
from sam2track.errors import VideoDecodeError, VideoError
from sam2track.stream import is_stream, open_stream
from sam2track.types import VideoFrame
from sam2track.video import open_video

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")


class Chunks:
    """The body of an answer whose length is not known when it begins."""

    def __init__(self, out: Any) -> None:
        self._out = out

    def write(self, data: bytes) -> None:
        if data:
            self._out.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        self._out.write(b"0\r\n\r\n")


@contextmanager
def served(write: Callable[[Any], None], length: int | None = None) -> Iterator[str]:
    """The URL of a server that answers each request with what `write` writes to the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Connection", "close")
            field = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
            self.send_header(*field)
            self.end_headers()
            with suppress(OSError):  # the reader has gone
                if length is not None:
                    write(self.wfile)
                    return
                chunks = Chunks(self.wfile)
                write(chunks)
                chunks.finish()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/live"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return media.make_video(tmp_path / "clip.mkv", frames=60, options={"g": "10", "bf": "2"}, audio="aac")


@contextmanager
def fed(*arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """An ffmpeg program that is ended with the block."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "quiet", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def same(frame: VideoFrame, other: VideoFrame) -> bool:
    return frame.frame_idx == other.frame_idx and frame.pts == other.pts and np.array_equal(frame.rgb, other.rgb)


def test_a_web_server_gives_the_frames_of_its_file(clip: Path) -> None:
    with served(lambda out: out.write(clip.read_bytes())) as url, open_stream(url) as stream:
        file = open_video(clip)
        assert (stream.info.width, stream.info.height, stream.info.has_audio) == (96, 64, True)
        assert stream.info.time_base == file.info.time_base
        found = list(stream)
    assert len(found) == 60
    assert all(map(same, found, file))


@needs_fifo
def test_a_named_pipe(clip: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_stream(str(pipe))
    with fed("-i", clip, "-c", "copy", "-f", "mpegts", pipe), open_stream(str(pipe)) as stream:
        assert [media.read_number(frame.rgb) for frame in stream] == list(range(60))
    with pytest.raises(VideoError, match="open_stream"):
        open_video(pipe)


def test_a_connection_of_its_own(clip: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"tcp://127.0.0.1:{port}"
    # Whichever comes first waits: ffmpeg tries again, the listener stays.
    sender = ("-i", clip, "-c", "copy", "-f", "mpegts")
    with fed(*sender, f"{url}?listen=1"):
        stream = _connected_soon(url)
        with stream:
            numbers = [media.read_number(frame.rgb) for frame in stream]
    assert numbers == list(range(60))


def _connected_soon(url: str) -> Any:
    for attempt in range(200):
        try:
            return open_stream(url)
        except VideoError:
            if attempt == 199:
                raise
            threading.Event().wait(0.05)
    return None


def test_standard_input(clip: Path) -> None:
    code = (
        "from sam2track.stream import open_stream\n"
        "with open_stream('-') as stream: print(sum(1 for _ in stream), stream.info.path)"
    )
    with clip.open("rb") as data:
        done = subprocess.run([sys.executable, "-c", code], stdin=data, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "60 -\n", "")


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libvpx-vp9", "libsvtav1", "mjpeg"])
def test_no_frame_is_held_back(tmp_path: Path, codec: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The server sends the next packet only once the frame before has come out."""
    options = {
        "libx264": {"tune": "zerolatency", "g": "10"},
        "libx265": {"preset": "ultrafast", "tune": "zerolatency", "x265-params": "log-level=none"},
        "libvpx-vp9": {"deadline": "realtime", "lag-in-frames": "0"},
        "libsvtav1": {"preset": "12", "svtav1-params": "pred-struct=1"},
        "mjpeg": {},
    }[codec]
    if codec not in av.codecs_available:
        pytest.skip(f"this PyAV has no {codec}")
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = media.make_video(tmp_path / "clip.mkv", frames=60, codec=codec, options=options, pix_fmt=pix_fmt)
    capfd.readouterr()  # what the encoder says
    data, ends = path.read_bytes(), media.packet_ends(path)
    at_once = 40  # FFmpeg looks at so many to find out about the stream
    wanted = threading.Semaphore(0)

    def write(out: Any) -> None:
        out.write(data[: ends[at_once - 1]])
        for begin, end in zip(ends[at_once - 1 :], ends[at_once:], strict=False):
            wanted.acquire()
            out.write(data[begin:end])
        out.write(data[ends[-1] :])

    with served(write) as url, open_stream(url, timeout_s=10) as stream:
        for frame in stream:
            if frame.frame_idx >= at_once - 1 - 1:  # one packet more: a block's end may be seen with the next only
                wanted.release()
    assert frame.frame_idx == 59


def test_a_live_source_is_read_once(clip: Path) -> None:
    with served(lambda out: out.write(clip.read_bytes())) as url, open_stream(url) as stream:
        frames = iter(stream)
        assert next(frames).frame_idx == 0
        with pytest.raises(VideoError, match="cannot go back"):
            iter(stream)
        assert len(list(frames)) == 59
        with pytest.raises(VideoError, match="cannot go back"):
            list(stream)


def test_closing_ends_reading_with_an_error(clip: Path) -> None:
    with served(lambda out: out.write(clip.read_bytes())) as url:
        with open_stream(url) as stream:
            frames = iter(stream)
            next(frames)
        for use in (lambda: next(frames), lambda: iter(stream)):
            with pytest.raises(VideoError, match="closed"):
                use()
        stream.close()
        assert stream.info.width == 96


def test_a_lost_connection_names_the_frame(clip: Path) -> None:
    data = clip.read_bytes()
    part = data[: media.packet_ends(clip)[30]]
    with served(lambda out: out.write(part), length=len(data)) as url, open_stream(url) as stream:
        numbers = []
        with pytest.raises(VideoDecodeError, match="open it again") as caught:
            for frame in stream:
                numbers.append(media.read_number(frame.rgb))
    assert numbers == list(range(len(numbers)))
    assert 20 < len(numbers) <= 31
    assert caught.value.frame_idx == len(numbers)


def test_silence_counts_as_a_lost_connection(clip: Path) -> None:
    part = clip.read_bytes()[: media.packet_ends(clip)[50]]
    over = threading.Event()

    def write(out: Any) -> None:
        out.write(part)
        over.wait(20)

    with served(write) as url, open_stream(url, timeout_s=1) as stream:
        with pytest.raises(VideoDecodeError, match="no data came") as caught:
            list(stream)
        over.set()
    assert 0 < caught.value.frame_idx <= 51


def test_an_end_before_the_first_frame(clip: Path) -> None:
    with served(lambda out: None) as url, pytest.raises(VideoError):
        open_stream(url)
    header = clip.read_bytes()[: media.packet_ends(clip)[0] // 2]
    with served(lambda out: out.write(header)) as url, pytest.raises(VideoError) as caught:
        open_stream(url)
    assert url in str(caught.value)


@pytest.mark.parametrize("cut", [0.3, 0.55])
def test_joining_in_the_middle_of_a_group_of_pictures(tmp_path: Path, cut: float) -> None:
    path = media.make_video(tmp_path / "clip.ts", frames=60, options={"g": "10", "bf": "2"})
    data = path.read_bytes()
    with served(lambda out: out.write(data[int(len(data) * cut) :])) as url, open_stream(url) as stream:
        numbers = [media.read_number(frame.rgb) for frame in stream]
    assert numbers == list(range(numbers[0], 60))
    assert numbers[0] % 10 == 0
    assert numbers[0] > 10


def test_what_cannot_be_decoded_before_the_first_frame_is_passed_over(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = stream_module.pictures_of
    packets = []

    def failing(packet: Any, source: str, frame_idx: int) -> Any:
        packets.append(packet.size)
        if len(packets) <= 10 or len(packets) == 40:
            raise damaged(source, frame_idx, "made to fail")
        return original(packet, source, frame_idx)

    monkeypatch.setattr(stream_module, "pictures_of", failing)
    with served(lambda out: out.write(clip.read_bytes())) as url, open_stream(url) as stream:
        numbers = []
        with pytest.raises(VideoDecodeError, match="made to fail"):
            for frame in stream:
                numbers.append(media.read_number(frame.rgb))
    assert numbers == list(range(10, 10 + len(numbers)))
    assert len(numbers) > 20


SECRET = "top/secret?p@ss"


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@127.0.0.1:9/live?key={SECRET}",
        "rtsp://user:topsecret@127.0.0.1:9/live",
        "nosuch://user:topsecret@host/live?token=topsecret",
        "tcp://127.0.0.1:9?password=topsecret",
    ],
)
def test_errors_do_not_show_passwords(url: str) -> None:
    with pytest.raises(VideoError) as caught:
        open_stream(url, timeout_s=5)
    shown: BaseException | None = caught.value
    while shown is not None:  # what a traceback shows: the error and what it came from
        assert "secret" not in str(shown)
        assert "p@ss" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert "live source" in str(caught.value)


def test_a_running_stream_does_not_show_its_password(clip: Path) -> None:
    data = clip.read_bytes()
    part = data[: media.packet_ends(clip)[30]]
    with served(lambda out: out.write(part), length=len(data)) as url:
        address = url.replace("http://", "http://user:topsecret@")
        with open_stream(address) as stream, pytest.raises(VideoDecodeError) as caught:
            list(stream)
    assert "secret" not in str(caught.value)
    assert "secret" not in str(stream.info.path)
    assert url in str(caught.value)
    assert caught.value.__suppress_context__


def test_what_is_not_a_video_stream_is_said(tmp_path: Path) -> None:
    sound = tmp_path / "sound.wav"
    media.ffmpeg("-f", "lavfi", "-i", "sine=d=0.5", sound)
    with served(lambda out: out.write(sound.read_bytes())) as url, pytest.raises(VideoError, match="only audio"):
        open_stream(url)
    with served(lambda out: out.write(b"no video" * 500)) as url, pytest.raises(VideoError, match="cannot be opened"):
        open_stream(url)
    with pytest.raises(VideoError, match="nosuchformat"):
        open_stream("-", format="nosuchformat")


def test_memory_stays_as_it_is() -> None:
    source = ("-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=48")
    process = psutil.Process()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"tcp://127.0.0.1:{port}"
    sender = (*source, "-c:v", "mpeg2video", "-f", "mpegts", f"{url}?listen=1")
    with fed(*sender), _connected_soon(url) as stream:
        sizes = [process.memory_info().rss for frame in stream if frame.frame_idx % 100 == 99]
    assert len(sizes) == 12
    assert max(sizes[4:]) - sizes[3] < 4 * 2**20  # 800 frames of 57 KB lie between them


@pytest.mark.parametrize(
    ("source", "live"),
    [
        ("rtsp://camera/1", True),
        ("HTTPS://host/x.mp4", True),
        ("udp://@:5000", True),
        ("-", True),
        ("file:///tmp/clip.mp4", False),
        ("File:///tmp/clip.mp4", False),
        ("clip.mp4", False),
        ("a:b.mp4", False),
        ("http:x.mp4", False),
        ("C:\\clips\\a.mp4", False),
        ("c://clips/a.mp4", False),
        ("", False),
        ("a\0b", False),
        ("/nowhere/video0", False),
    ],
)
def test_what_counts_as_live(source: str, live: bool) -> None:
    assert is_stream(source) is live


def test_a_file_and_a_device(clip: Path) -> None:
    assert not is_stream(str(clip))
    assert not is_stream(str(clip.parent))
    if Path("/dev/null").exists():
        assert is_stream("/dev/null")
        with pytest.raises(VideoError, match="/dev/null cannot be opened"):
            open_stream("/dev/null")


def test_importing_loads_neither_av_nor_cv2() -> None:
    code = "import sam2track.stream, sys; sys.exit(bool({'av', 'cv2', 'onnxruntime'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
