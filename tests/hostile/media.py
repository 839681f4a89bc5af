"""Hostile videos: damaged containers and packets, absurd headers, playlists, metadata, pictures."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from bgsoft.exitcodes import ExitCode
from tests.hostile.case import ABSURD, Case, Stock, flipped, mangled, render

_PARENTS = {
    *(b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"udta", b"dinf", b"moof", b"traf"),
    b"mvex",
}
Box = tuple[bytes, Any]
"""An MP4 box: type, and its payload or the boxes in it."""


def _case(stock: Stock, folder: Path, name: str, data: bytes, what: str, **more: Any) -> Case:
    source = folder / name
    source.write_bytes(data)
    run = render(stock, folder, source)
    return Case(what=what, run=run, source=source, **more)


def damaged_bytes(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A container whose bytes are damaged without regard to what they mean."""
    clip = stock.clip(rng)
    data = mangled(rng, clip.read_bytes())
    return _case(stock, folder, f"in{clip.suffix}", data, f"mangled {clip.name}")


def damaged_head(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A container with some bits of its first bytes flipped, where sizes and types are."""
    clip = stock.clip(rng)
    data = clip.read_bytes()
    head = 1 << rng.randrange(5, 11)
    made = flipped(rng, data[:head], rng.randrange(1, 5)) + data[head:]
    return _case(stock, folder, f"in{clip.suffix}", made, f"flips in the head of {clip.name}")


def _boxes(data: bytes) -> list[Box]:
    found: list[Box] = []
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if size < 8 or at + size > len(data):
            break
        payload = data[at + 8 : at + size]
        found.append((kind, _boxes(payload) if kind in _PARENTS else payload))
        at += size
    return found


def _packed(boxes: list[Box]) -> bytes:
    parts = []
    for kind, content in boxes:
        payload = _packed(content) if isinstance(content, list) else content
        parts.append(struct.pack(">I4s", len(payload) + 8, kind) + payload)
    return b"".join(parts)


def _levels(boxes: list[Box]) -> list[list[Box]]:
    inner = (content for _, content in boxes if isinstance(content, list))
    return [boxes, *(level for content in inner for level in _levels(content))]


def damaged_boxes(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """An MP4 file whose boxes are shuffled, lost, doubled, nested, or hold absurd numbers."""
    clip = stock.clip(rng, ".mp4", ".mov")
    boxes = _boxes(clip.read_bytes())
    what = ""
    for _ in range(rng.randrange(1, 4)):
        level = rng.choice([level for level in _levels(boxes) if level])
        at = rng.randrange(len(level))
        kind, content = level[at]
        how = rng.choice(("shuffled", "lost", "doubled", "nested", "renamed", *["number"] * 5))
        if how == "shuffled":
            rng.shuffle(level)
        elif how == "lost":
            del level[at]
        elif how == "doubled":
            level.insert(rng.randrange(len(level)), (kind, content))
        elif how == "nested":
            level[at] = (b"udta", [(kind, content)])
        elif how == "renamed":
            level[at] = (rng.choice((b"free", b"moov", b"stbl", b"mdat", b"tkhd")), content)
        elif isinstance(content, bytes) and len(content) >= 8:
            place = 4 * rng.randrange(len(content) // 4)
            number = struct.pack(">I", rng.choice(ABSURD) & (2**32 - 1))
            level[at] = (kind, content[:place] + number + content[place + 4 :])
        what += f" {kind.decode('latin-1')} {how}"
    return _case(stock, folder, f"in{clip.suffix}", _packed(boxes), f"{clip.name}:{what}")


def damaged_packets(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A whole container that holds damaged, lost, doubled or reordered packets, or odd times."""
    clip = stock.clip(rng, ".mp4", ".mkv", ".ts", ".avi", ".webm", ".mov")
    name = f"in{rng.choice(('.mkv', '.nut', clip.suffix))}"
    how = rng.choice(("flipped", "cut", "lost", "doubled", "times", "times", "empty"))
    if clip.suffix in (".mov", ".webm"):
        name = f"in{clip.suffix}"  # NUT has no name for all codecs
    with av.open(str(clip)) as source, av.open(str(folder / name), "w") as target:
        streams = {s.index: target.add_stream_from_template(s) for s in source.streams}
        for packet in [p for p in source.demux() if p.size]:
            copies = 1
            if packet.stream.type == "video" and rng.random() < 0.4:
                if how in ("flipped", "cut", "empty"):
                    data = bytes(packet)
                    cut = data[: rng.randrange(1, len(data) + 1)] if how == "cut" else data[:1]
                    new = av.Packet(flipped(rng, data, 4) if how == "flipped" else cut)
                    new.pts, new.dts, new.time_base = packet.pts, packet.dts, packet.time_base
                    new.is_keyframe = packet.is_keyframe
                    packet_stream, packet = packet.stream, new
                    packet.stream = packet_stream
                elif how == "times":
                    shift = rng.choice((-1, 1)) * rng.choice((1, 999, 90_000 * 3600, 2**31, 2**40))
                    packet.pts = None if packet.pts is None else packet.pts + shift
                    packet.dts = packet.pts
                else:
                    copies = 0 if how == "lost" else 3
            packet.stream = streams[packet.stream.index]
            for _ in range(copies):
                try:
                    target.mux(packet)
                except (av.FFmpegError, ValueError):
                    break
    source_path = folder / name
    run = render(stock, folder, source_path)
    return Case(what=f"{clip.name}: packets {how}", run=run, source=source_path)


class _Bits:
    """A string of bits with Exp-Golomb numbers, as H.264's headers are."""

    def __init__(self, data: bytes) -> None:
        self.bits = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def ue(self) -> int:
        zeros = self.bits.index("1", self.at) - self.at
        end = self.at + 2 * zeros + 1
        value = int(self.bits[self.at + zeros : end], 2) - 1
        self.at = end
        return value

    @staticmethod
    def packed(value: int) -> str:
        digits = f"{value + 1:b}"
        return "0" * (len(digits) - 1) + digits


def with_size(sps: bytes, columns: int, rows: int) -> bytes:
    """A baseline H.264 parameter set for so many macroblocks."""
    bits = _Bits(sps.replace(b"\0\0\3", b"\0\0"))
    assert sps[1] == 66, "baseline"
    bits.at = 32
    bits.ue(), bits.ue()
    if bits.ue() == 0:
        bits.ue()
    bits.ue()
    bits.at += 1
    begin = bits.at
    bits.ue(), bits.ue()
    made = bits.bits[:begin] + bits.packed(columns - 1) + bits.packed(rows - 1)
    made += bits.bits[bits.at :]
    made += "0" * (-len(made) % 8)
    data = int(made, 2).to_bytes(len(made) // 8, "big")
    for low in range(4):
        data = data.replace(b"\0\0" + bytes([low]), b"\0\0\3" + bytes([low]))
    return data


_SIZES = (0, 1, 16_000, 16_384, 32_768, 65_535, 99_999, 2**31 - 1, 2**32 - 1)


def absurd_picture(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A video whose header says that its pictures are huge, or that there are none."""
    size = width, height = rng.choice(_SIZES), rng.choice(_SIZES)
    kind = rng.choice(("y4m", "avi", "gif", "ivf", "h264", "nut", "mkv"))
    if kind == "y4m":
        rate = rng.choice(("25:1", "0:0", "1:0", "999999999:1", "-5:1", "1:99999999"))
        head = f"YUV4MPEG2 W{width} H{height} F{rate} Ip A1:1 C420\nFRAME\n"
        return _case(stock, folder, "in.y4m", head.encode() + bytes(4608), head)
    if kind == "gif":
        logical = struct.pack("<HH", width & 0xFFFF, height & 0xFFFF)
        data = stock.clip(rng, ".gif").read_bytes()
        return _case(stock, folder, "in.gif", data[:6] + logical + data[10:], f"GIF of {size}")
    if kind == "ivf":
        data = bytearray(stock.clip(rng, ".ivf").read_bytes())
        struct.pack_into(
            "<HHII",
            data,
            12,
            width & 0xFFFF,
            height & 0xFFFF,
            *rng.sample([number & (2**32 - 1) for number in ABSURD], 2),
        )
        return _case(stock, folder, "in.ivf", bytes(data), f"IVF of {size}")
    if kind == "h264":
        data = stock.clip(rng, ".h264").read_bytes()
        units = data.split(b"\0\0\0\1")
        columns, rows = (max(1, min(4096, side // 16)) for side in size)
        made = [with_size(u, columns, rows) if u[:1] and u[0] & 31 == 7 else u for u in units]
        data = b"\0\0\0\1".join(made)
        return _case(stock, folder, "in.h264", data, f"H.264 of {16 * columns}x{16 * rows}")
    old = {
        "avi": struct.pack("<II", 64, 48),
        "nut": b"\x40\x30",
        "mkv": b"\xb0\x81\x40\xba\x81\x30",
    }
    new = {
        "avi": struct.pack("<II", width, height),
        "nut": b"\xff\x7f\xff\x7f",
        "mkv": b"\xb0\x84" + struct.pack(">I", width) + b"\xba\x84" + struct.pack(">I", height),
    }
    data = stock.clip(rng, f".{kind}").read_bytes().replace(old[kind], new[kind])
    return _case(stock, folder, f"in.{kind}", data, f"{kind} of {size}")


def playlist(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A text that leads to other files and to addresses, under any name."""
    address = f"http://127.0.0.1:{stock.port}/clip.ts"
    target = rng.choice(
        (address, str(stock.secret), f"../{stock.secret.name}", f"file:{stock.secret}",
         f"subfile,,start,0,end,0,,:{stock.secret}", f"concat:{stock.secret}|{stock.secret}",
         address.replace("http", "tcp"), address.replace("http", "rtmp"), f"crypto+{address}")
    )  # fmt: skip
    texts = {
        "hls": f'#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:9\n#EXT-X-MAP:URI="{target}"\n'
        f'#EXT-X-KEY:METHOD=AES-128,URI="{target}"\n#EXTINF:9,\n{target}\n#EXT-X-ENDLIST\n',
        "master": f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=9\n{target}\n",
        "concat": f"ffconcat version 1.0\nfile '{target}'\n",
        "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT9S"><Period><AdaptationSet mimeType="video/mp4">'
        f'<Representation id="0" bandwidth="9"><BaseURL>{target}</BaseURL>'
        "</Representation></AdaptationSet></Period></MPD>",
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
        f"m=video {stock.port} RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        "asx": f'<asx version="3.0"><entry><ref href="{target}"/></entry></asx>',
        "ism": f'<?xml version="1.0"?><SmoothStreamingMedia u="{target}"/>',
        "rtsp": f"[Reference]\nRef1={target}\n",
        "imf": f'<?xml version="1.0"?><AssetMap><Path>{target}</Path></AssetMap>',
        "avs": f'AviSource("{target}")\n',
    }
    kind = rng.choice(list(texts))
    space = rng.choice(("", "", "\ufeff", "\n\n", " "))
    suffixes = ("m3u8", "mp4", "mkv", "mpd", "sdp", "txt", "concat", "ts", "avs", "h264")
    name = f"in.{rng.choice(suffixes)}"
    refused = frozenset({ExitCode.INPUT})
    data = (space + texts[kind]).encode()
    return _case(stock, folder, name, data, f"{kind} as {name} to {target}", codes=refused)


def other_file(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """An MP4 whose samples are said to lie in another file (Apple's references)."""
    clip = stock.clip(rng, ".mp4", ".mov")
    link = str(stock.secret).encode()
    alias = rng.choice((
        b"url \0\0\0\0" + b"file://" + link + b"\0",
        b"url \0\0\0\0" + f"http://127.0.0.1:{stock.port}/a".encode() + b"\0",
        b"alis\0\0\0\0" + bytes(150) + b"\0\x12" + struct.pack(">H", len(link)) + link
        + b"\xff\xff\0\0",
        b"rsrc\0\0\0\0" + link,
    ))  # fmt: skip
    boxes = _boxes(clip.read_bytes())
    reference = struct.pack(">I", len(alias) + 4) + alias
    for level in _levels(boxes):
        for at, (kind, _) in enumerate(level):
            if kind == b"dref":
                level[at] = (kind, bytes(4) + struct.pack(">I", 1) + reference)
    if rng.random() < 0.3:
        data = struct.pack(">I", len(link) + 12) + b"url " + bytes(4) + link
        boxes.append((b"moov", [(b"rmra", struct.pack(">I4s", 8 + len(data), b"rmda") + data)]))
    return _case(stock, folder, f"in{clip.suffix}", _packed(boxes), "a reference movie")


def much_metadata(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A short clip with up to 10 MB of tags, chapters, attachments or tracks."""
    clip = stock.clip(rng, ".mp4", ".mkv")
    how = rng.choice(("one tag", "many tags", "chapters", "tracks", "attachment"))
    size = rng.choice((10_000, 1_000_000, 10_000_000))
    name = f"in{rng.choice(('.mkv', '.mp4'))}" if how != "attachment" else "in.mkv"
    with av.open(str(clip)) as source, av.open(str(folder / name), "w") as target:
        video = source.streams.video[0]
        copy = target.add_stream_from_template(video)
        if how == "one tag":
            target.metadata["title"] = "x" * size
        elif how == "many tags":
            target.metadata.update({f"tag {i}": "y" * 90 for i in range(size // 1000)})
        elif how == "chapters":
            tick = Fraction(1, 1000)
            chapters = [
                {"id": i, "start": i, "end": i + 1, "time_base": tick, "metadata": {"title": "z"}}
                for i in range(size // 5000)
            ]
            target.set_chapters(chapters)  # type: ignore[arg-type]
        elif how == "attachment":
            target.add_attachment("font.ttf", "application/x-truetype-font", rng.randbytes(size))
        more = 30 if how == "tracks" else 0
        tracks = [copy, *(target.add_stream_from_template(video) for _ in range(more))]
        for packet in [p for p in source.demux(video) if p.size]:
            for track in tracks:
                packet.stream = track
                target.mux(packet)
    path = folder / name
    return Case(what=f"{how}, {size} bytes", run=render(stock, folder, path), source=path)


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(3 * 64 + 1))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _pictures(width: int, height: int) -> dict[str, bytes]:
    low = (width & 0xFFFF, height & 0xFFFF)
    jpeg = (
        b"\xff\xd8\xff\xc0\0\x11\x08"
        + struct.pack(">HH", *low[::-1])
        + b"\x03\1\x11\0\2\x11\0\3\x11\0"
    )
    return {
        "png": _png(width & (2**31 - 1), height & (2**31 - 1)),
        "jpg": jpeg + b"\xff\xda\0\x0c\3\1\0\2\0\3\0\0?\0\0\xff\xd9",
        "bmp": b"BM" + struct.pack("<IIIIiiHHIIiiII", 200, 0, 54, 40, width & (2**31 - 1),
                                   height & (2**31 - 1), 1, 24, 0, 0, 0, 0, 0, 0) + bytes(200),
        "tif": b"II*\0\x08\0\0\0\3\0" + b"".join(
            struct.pack("<HHII", tag, 4, 1, value) for tag, value in
            ((256, width & (2**32 - 1)), (257, height & (2**32 - 1)), (273, 8))) + bytes(4),
        "webp": b"RIFF\x1e\0\0\0WEBPVP8X\x0a" + bytes(7) + (width & 0xFFFFFF).to_bytes(3, "little")
        + (height & 0xFFFFFF).to_bytes(3, "little") + bytes(12),
        "exr": b"\x76\x2f\x31\x01\2\0\0\0" + bytes(60),
        "gif": b"GIF89a" + struct.pack("<HH", *low) + b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0"
        + struct.pack("<HH", *low) + b"\0\2\2D\1\0;",
    }  # fmt: skip


def picture(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A picture of absurd size, as the input, or as what is put behind people."""
    size = rng.choice(_SIZES), rng.choice(_SIZES)
    kind, data = rng.choice(list(_pictures(*size).items()))
    if rng.random() < 0.3:
        data = mangled(rng, data)
    path = folder / f"picture.{kind}"
    path.write_bytes(data)
    if rng.random() < 0.5:
        return Case(what=f"{kind} of {size}", run=render(stock, folder, path), source=path)
    clip = stock.clip(rng, ".mp4")
    run = render(stock, folder, clip, "--effect", "image", "--background", str(path))
    return Case(what=f"{kind} of {size} as background", run=run)


def background_video(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A damaged video that is put behind people."""
    clip = stock.clip(rng)
    path = folder / f"behind{clip.suffix}"
    path.write_bytes(mangled(rng, clip.read_bytes()))
    source = stock.clip(rng, ".mp4")
    run = render(stock, folder, source, "--effect", "video", "--background", str(path))
    return Case(what=f"mangled {clip.name} as background", run=run, source=None)


def part(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A damaged container of which a part is wanted."""
    clip = stock.clip(rng)
    path = folder / f"in{clip.suffix}"
    path.write_bytes(mangled(rng, clip.read_bytes()))
    start, duration = (
        rng.choice(("0", "0.05", "9999999", "1e300")),
        rng.choice(("0.1", "1e-9", "1e300")),
    )
    run = render(stock, folder, path, "--start", start, "--duration", duration)
    return Case(what=f"mangled {clip.name} from {start} for {duration}", run=run)


MAKERS: dict[Callable[[random.Random, Path, Stock], Case], int] = {
    damaged_bytes: 26,
    damaged_head: 12,
    damaged_boxes: 18,
    damaged_packets: 14,
    absurd_picture: 8,
    playlist: 8,
    other_file: 2,
    much_metadata: 2,
    picture: 8,
    background_video: 5,
    part: 5,
}
"""Makers of cases, by how many of a hundred or so are theirs."""
