"""Opening of inputs: single local files and pipes, with video, whatever they claim to be.

A media file is untrusted. A playlist, a reference movie or an image pattern can make FFmpeg open
other files and network addresses. So only demuxers that read nothing but the file itself are
admitted, and only FFmpeg's ``file`` protocol. The name is passed as a ``file:`` URL, so that
``http:a.mp4`` or ``%03d.png`` is just a name.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream

from bgsoft.errors import MediaError, OpenError, UnsupportedFormatError, translated
from bgsoft.media.containers import STILL_NAMES
from bgsoft.media.pipe import PipeInput, PipePackets
from bgsoft.media.pyav import PYAV_ERRORS, TAG_OPTIONS
from bgsoft.outputs import DASH
from bgsoft.suggestions import nearest, network_address
from bgsoft.untrusted import NOT_REGULAR

RAW_STREAMS = ("h264", "hevc", "vvc", "m4v", "h263", "mpegvideo", "vc1", "obu")
"""Demuxers of streams without a container: they have no index and no timestamps."""
CONTAINERS = (
    *("mov", "matroska", "avi", "mpegts", "mpeg", "mxf", "gxf", "flv", "ogg", "asf", "rm", "nut"),
    *("dv", "gif", "yuv4mpegpipe", "ivf"),
    *RAW_STREAMS,
)
"""Names of the demuxers that may run. None of them opens a second file: ``mov`` ignores references
to other files unless enabled (``enable_drefs``, off)."""

_OPTIONS = {"protocol_whitelist": "file", "format_whitelist": ",".join(CONTAINERS)}
_HEAD_BYTES = 512
_SEEK_MARGIN_SECONDS = 15
"""How far before a part's start reading begins, so that a subtitle on screen there is found."""
_NEAR_SECONDS = 2
"""How far a seek in a broadcast may end from its time. Farther ones read from the start."""
MAX_PIXELS = 80_216_064
"""Largest number of pixels of a picture: 12K (HEVC's level 6.3). A kilobyte can claim far more, and
gigabytes of memory with that; decoders refuse it before they allocate anything."""


# Bytes that identify kinds of files: (offset, bytes, name).
_IMAGES = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"BM", "BMP"),
    (8, b"WEBP", "WebP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftypavis", "AVIF"),
    (4, b"ftypheic", "HEIC"),
    (4, b"ftypheix", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"8BPS", "PSD"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (4, b"ftypcrx ", "CR3"),
    (0, b"FUJIFILMCCD-RAW", "RAF"),
    (0, b"%PDF", "PDF"),
)
_SOUNDS = ((0, b"ID3", "MP3"), (0, b"\xff\xfb", "MP3"), (8, b"WAVE", "WAV"), (0, b"fLaC", "FLAC"))
_GIF = ((0, b"GIF8", "GIF"),)
"""Read as a video."""
_PLAYLISTS = (
    (0, b"#EXTM3U", "HLS"),
    (0, b"ffconcat version", "concat"),
    (0, b"v=0", "SDP"),
    (0, b"<?xml", "XML"),
    (0, b"<MPD", "DASH"),
)
# FFmpeg's guess also goes by the file's name, and takes a video called «%03d.png» for a series of
# pictures. Where that happens and the first bytes are certain, the demuxer is named outright.
_DEMUXERS = (
    (4, b"ftyp", "mov"),
    (4, b"moov", "mov"),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (8, b"AVI ", "avi"),
    (0, b"FLV\x01", "flv"),
    (0, b"OggS", "ogg"),
    (0, b"DKIF", "ivf"),
    (0, b"YUV4MPEG2 ", "yuv4mpegpipe"),
    (188, b"\x47", "mpegts"),  # packets of 188 bytes, each with this sync byte
)


def _match(head: bytes, signatures: tuple[tuple[int, bytes, str], ...]) -> str | None:
    found = (name for offset, magic, name in signatures if head.startswith(magic, offset))
    return next(found, None)


def begins_picture(data: bytes) -> bool:
    """Return whether data are a picture's, by their first bytes."""
    return _match(data, _IMAGES + _GIF) is not None


def read_head(path: Path) -> bytes:
    """First bytes of a regular file; raises OpenError where there are none."""
    with translated(OSError, ValueError, to=lambda exc: _unreadable(path, exc)):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise OpenError(f"cannot read {path}: it is a folder; name a video file", path=path)
        if not stat.S_ISREG(mode):
            # A pipe or device would block, and cannot be read twice.
            raise OpenError(f"cannot read {path}: {NOT_REGULAR}", path=path)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    return _not_empty(path, head)


def _not_empty(path: Path, head: bytes) -> bytes:
    if not head:
        raise OpenError(f"cannot read {path}: it is empty (0 bytes)", path=path)
    return head


def _unreadable(path: Path, exc: OSError | ValueError) -> OpenError:
    if not isinstance(exc, FileNotFoundError):
        denied = isinstance(exc, PermissionError)
        reason = "permission denied" if denied else getattr(exc, "strerror", None) or exc
        text = f"cannot read {path}: {reason}"
    elif (address := network_address(path)) is not None:
        text = (
            f"cannot read {address}: it is an address, and only local files are read; download it"
            " first"
        )
    elif path == DASH:
        text = "cannot read stdin here: only bgsoft render reads it; name a file"
    elif path.is_symlink():
        text = f"cannot read {path}: it is a broken link to {path.readlink()}"
    else:
        text = f"cannot read {path}: it does not exist{_similar(path)}"
    return OpenError(text, path=path)


def _similar(path: Path) -> str:
    """Return a suggestion of a file with a similar name in the same folder; empty for none."""
    with contextlib.suppress(OSError):
        names = {
            each.stem: each.name
            for each in path.parent.iterdir()
            if each.suffix.lower() == path.suffix.lower() or each.stem == path.stem
        }
        near = nearest(path.stem, names)
        return f"; did you mean {names[near]}?" if near else ""
    return ""


def _index_comes_last(head: bytes) -> bool:
    """Return whether a file of MP4's kind holds its data before what is needed to read it."""
    at = 0
    while len(box := head[at : at + 8]) == 8 and box[4:] not in (b"moov", b"moof"):
        if box[4:] == b"mdat":
            return True
        at += max(8, int.from_bytes(box[:4], "big"))
    return False


def _explain(path: Path, head: bytes, exc: Exception) -> MediaError:
    """The error that fits a file FFmpeg refused."""
    playlist = _match(head.lstrip(b"\xef\xbb\xbf \t\r\n"), _PLAYLISTS)
    if playlist:
        return UnsupportedFormatError(
            f"cannot read {path}: it is a playlist or manifest ({playlist}); name the video file",
            path=path,
        )
    known = _match(head, _DEMUXERS)
    if known:
        text = f"cannot read {path}: its header is damaged or incomplete"
        if known == "mov":
            text += " (it may have been cut off while it was written); copy or download it again"
        return OpenError(text, path=path)
    sound = _match(head, _SOUNDS)
    if sound:
        text = f"cannot read {path}: it holds sound ({sound}) but no video"
        return OpenError(text, path=path)
    if isinstance(exc, av.error.ArgumentError):
        # The error of the format whitelist: FFmpeg knows the format, but bgsoft does not admit it.
        return UnsupportedFormatError(
            f"cannot read {path}: its container is not supported", path=path
        )
    return OpenError(f"cannot read {path}: it is not a media file, or is damaged", path=path)


def open_input(source: Path | PipeInput, **options: str) -> InputContainer:
    """Open a local media file, or a pipe from its beginning, for reading.

    Further options are those of its demuxer.

    FFmpeg's log stays silent: PyAV drops it unless a caller has asked for it.

    Raises:
        OpenError: The file is missing, unreadable, empty, damaged or no media.
        UnsupportedFormatError: It is an image, a playlist, or in a container outside
            :data:`CONTAINERS`.
    """
    pipe = source if isinstance(source, PipeInput) else None
    path = source.path if isinstance(source, PipeInput) else source
    head = read_head(path) if pipe is None else _not_empty(path, pipe.head(_HEAD_BYTES))
    image = _match(head, _IMAGES)
    if image:
        names = STILL_NAMES.values()
        text = f"{path} is an image ({image}), not a video"
        if pipe is not None:
            text = (
                f"cannot read {path}: a picture ({image}) cannot be read from a pipe; name a file"
            )
        if image not in names:
            text = f"cannot read {path}: pictures may be {', '.join(names)}, not {image}"
        raise UnsupportedFormatError(text, path=path)
    if pipe is not None and _index_comes_last(head):
        text = (
            f"{path} is an MP4 or MOV whose index comes last, which cannot be read from a pipe: "
            "write it with -movflags +faststart, or send MKV or NUT"
        )
        raise UnsupportedFormatError(text, path=path)

    def opened(demuxer: str | None = None) -> InputContainer:
        file = f"file:{path}" if pipe is None else pipe.reader()
        limits, decoding = _OPTIONS | options, {"max_pixels": str(MAX_PIXELS)}
        container: InputContainer = av.open(
            file, "r", format=demuxer, options=decoding, container_options=limits, **TAG_OPTIONS
        )
        for stream in container.streams.video:
            if stream.codec_context is not None:  # there is a decoder
                stream.codec_context.options = decoding
        return container

    with translated(*PYAV_ERRORS, to=lambda exc: _explain(path, head, exc)):
        try:
            return opened()
        # The answer of the format whitelist; and to MPEG-TS so short that it is taken for MPEG-PS.
        except (av.error.ArgumentError, av.error.EOFError):
            demuxer = _match(head, _DEMUXERS)
            if demuxer is None:
                raise
            return opened(demuxer)


def indexed_frames(path: Path, index: int) -> int:
    """Frames of a stream that a file's index holds, those too that an edit list leaves out."""
    with open_input(path, advanced_editlist="0") as source:
        stream = source.streams[index]
        return len(stream.index_entries) if isinstance(stream, VideoStream) else 0


def rendered_packets(pipe: PipeInput, video_index: int) -> PipePackets:
    """The one reading of a pipe that goes on to its end; begun by whoever asks first."""
    with pipe.beginning:
        if pipe.packets is None:
            pipe.packets = PipePackets(pipe, open_input(pipe), video_index)
    return pipe.packets


def seek_before(file: InputContainer, begin: Fraction) -> None:
    """Go to a time early enough to find a subtitle that is on screen at ``begin``."""
    if begin > _SEEK_MARGIN_SECONDS:
        time = begin - _SEEK_MARGIN_SECONDS
        # A seek that fails leaves the input at its start: slower, but right.
        with contextlib.suppress(av.FFmpegError):
            file.seek(int(time * av.time_base))
            if file.format.name in ("mpegts", "mpeg"):
                # FFmpeg may find no such time, as by another program's clock, and go to the end.
                first = next((p for p in file.demux() if p.dts is not None), None)
                landed = 0 if first is None else (first.dts or 0) * first.time_base
                is_near = abs(landed - time) < _NEAR_SECONDS
                file.seek(int(time * av.time_base) if is_near else file.start_time or 0)


def read_packets(
    source: Path | PipeInput, *indices: int, begin: Fraction | None = None
) -> Iterator[Packet[Any]]:
    """The packets of some streams, through an opening of the file of its own.

    They begin early enough for a part that begins at ``begin``. They end where the file cannot be
    read further; the decoder reports that.
    """
    with open_input(source) as file, contextlib.suppress(av.FFmpegError):
        if begin is not None:
            seek_before(file, begin)
        for packet in file.demux([file.streams[index] for index in indices]):
            if packet.size:
                yield packet


def _is_picture(stream: VideoStream) -> bool:
    """Return whether a video stream is cover art or a thumbnail track."""
    kinds = Disposition.attached_pic | Disposition.timed_thumbnails | Disposition.still_image
    return bool(stream.disposition & kinds)


def select_video_stream(container: InputContainer, path: Path) -> VideoStream:
    """The video stream to render: FFmpeg's best, never cover art.

    Raises:
        OpenError: There is no video stream.
        UnsupportedFormatError: No decoder exists for it.
    """
    candidates = [stream for stream in container.streams.video if not _is_picture(stream)]
    if not candidates:
        found = "a cover picture but " if container.streams.video else ""
        if not found and container.streams.audio:
            found = "sound but "
        raise OpenError(f"cannot read {path}: it holds {found}no video", path=path)
    decodable = [stream for stream in candidates if stream.codec_context is not None]
    if not decodable:
        raise UnsupportedFormatError(
            f"cannot read {path}: FFmpeg has no decoder for its video codec", path=path
        )
    best = container.streams.best("video")
    return next((s for s in decodable if best is not None and s.index == best.index), decodable[0])
