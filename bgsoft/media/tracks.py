"""The tracks that are not rendered: sound, subtitles, covers, attachments, chapters.

The input is opened a second time for them, and the rendered video is discarded there. So they cost
little, and do not depend on the decoder. A pipe has one demuxer, which both share.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from fractions import Fraction
from typing import Any

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Discard

from bgsoft.media.identifying import has_coordinates
from bgsoft.media.info import ends_early
from bgsoft.media.listing import can_seek
from bgsoft.media.sound_check import MAX_BEHIND_SECONDS
from bgsoft.media.source import rendered_packets, seek_before
from bgsoft.media.splice import SplicedClock
from bgsoft.media.tags import chapters_in, is_picture_tag
from bgsoft.media.track import OutputTrack
from bgsoft.media.track_maker import TrackMaker


class CopiedTracks:
    """All tracks of the input but the rendered video.

    Args:
        maker: Makes the output tracks. Its source, opened for this purpose or the demuxer of the
            pipe, is owned from here on.
    """

    def __init__(self, maker: TrackMaker) -> None:
        self._maker = maker
        self.audio = maker.audio
        """Outcome of each audio track."""
        self.picture_tags: dict[str, None] = {}
        """Names of the chapters' tags that were left out because they are pictures."""
        self._source, self._writer = maker.source, maker.writer
        info, container = maker.writer.info, maker.writer.container
        self._info, self._container = info, container
        self._timeline, self._copied, self._metadata = maker.timeline, maker.copied, maker.metadata
        self._tracks: dict[int, OutputTrack] = {}
        self._packets = self._read()
        self._position = float("-inf")
        self._ends: dict[int, Fraction] = {}
        """End of each track's last packet, in seconds of the source's clock."""
        self._splices = SplicedClock.of(info, self._source.streams)
        pipe, video = info.pipe, info.stream_index
        self._pipe = None if pipe is None else rendered_packets(pipe, video)

    def attach(self, output: OutputContainer) -> None:
        """Add the output streams; before the output's header is written."""
        for stream in self._source.streams:
            rendered = stream.index == self._info.stream_index
            track = None if rendered else self._maker.add(output, stream)
            if track is not None:
                self._tracks[stream.index] = track
            elif not rendered or (self._splices is None and self._pipe is None):
                stream.discard = Discard.all
        if self._pipe is not None and self._tracks:
            self._pipe.copy()
        self._maker.make_room()
        self.write_chapters(output)

    def _notice(self, message: str) -> None:
        self._writer.report("notice", message)

    def _warn(self, message: str) -> None:
        self._writer.report("warning", message)

    def write_chapters(self, output: OutputContainer) -> None:
        """Set the output's chapters; once more if the timeline has moved."""
        chapters = chapters_in(self._source.chapters(), self._timeline)
        for chapter in chapters if self._metadata.strips else ():
            chapter["metadata"] = self._metadata.tags(chapter["metadata"])
        for chapter in () if self._copied.pictures else chapters:
            tags = chapter["metadata"]
            pictures = [key for key, value in tags.items() if is_picture_tag(key, value)]
            chapter["metadata"] = {key: tags[key] for key in tags if key not in pictures}
            self.picture_tags.update(dict.fromkeys(pictures))
        if self._container.muxer in ("mp4", "mov"):
            # FFmpeg leaves out untitled chapters of the track of titles: others took their titles.
            for number, chapter in enumerate(chapters, 1):
                chapter["metadata"] = {"title": f"Chapter {number}", **chapter["metadata"]}
        if chapters and self._container.chapters:
            output.set_chapters(chapters)
        elif chapters:
            self._notice(f"chapters left out: {self._container.name} cannot hold them")

    def pull(self, until_seconds: float) -> Iterator[Packet[Any]]:
        """Packets of the output streams until the input has been read up to a time."""
        yield from self._pull(until_seconds)
        if self._position >= 0:
            for index, track in self._tracks.items():
                yield from self._guarded(index, track.release())

    def _pull(self, until_seconds: float) -> Iterator[Packet[Any]]:
        while self._position < until_seconds:
            done = all(track.done for track in self._tracks.values())
            packet = None if done else next(self._packets, None)
            if packet is None:
                self._position = float("inf")
                self._packets.close()
                return
            for timed in (packet,) if self._splices is None else self._splices.feed(packet):
                yield from self._feed(timed)

    def drain(self) -> Iterator[Packet[Any]]:
        """All remaining packets, the encoders' included."""
        yield from self.pull(float("inf"))
        for packet in () if self._splices is None else self._splices.flush():
            yield from self._feed(packet)
        for index, track in self._tracks.items():
            yield from self._guarded(index, track.flush())
            if track.damaged_packets:
                self._warn(f"track {index}: {track.damaged_packets} damaged packets left out")
            if track.overlapping_packets:
                what = f"packets left out that step back in time: {track.overlapping_packets}"
                self._writer.report("repair", f"track {index}: {what}")
        for span in () if self._maker.muting is None else self._maker.muting.without_effect:
            self._warn(f"--mute {span.text} mutes nothing: the output has no sound at that time")

    def cut_off(self) -> Iterator[str]:
        """Yield warnings, after a whole MP4 or MOV, about sound that ends before its header says.

        Other headers do not have the length of each track.
        """
        is_part = self._timeline.begin is not None or self._timeline.end is not None
        for index in () if is_part or not self._info.is_mov else self._tracks:
            stream = self._source.streams[index]
            if isinstance(stream, AudioStream) and stream.duration and stream.time_base:
                declared = float(stream.duration * stream.time_base)
                begin = (stream.start_time or 0) * stream.time_base
                seconds = float(self._ends.get(index, begin) - begin)
                if ends_early(seconds, declared):
                    yield (
                        f"track {index}, sound, ends after {seconds:.2f} s, its header says"
                        f" {declared:.2f} s; the file may have been cut off"
                    )

    def _feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        track = self._tracks.get(packet.stream_index)
        # A pipe's tracks are read only until the packets that belong to a picture have arrived.
        tells = self._pipe is not None and packet.stream_index == self._info.stream_index
        if not tells and (track is None or not packet.size or track.done):
            return ()
        if track is not None and self._ends_with(packet):
            track.done = True
            self._notice(f"subtitle track {packet.stream_index} ends where coordinates begin")
            return ()
        time = packet.dts if packet.dts is not None else packet.pts
        if time is not None:
            seconds, end = time * packet.time_base, self._timeline.end
            self._ends[packet.stream_index] = seconds + (packet.duration or 0) * packet.time_base
            self._position = max(self._position, float(seconds - self._timeline.origin))
            if tells and end is not None and seconds > end + MAX_BEHIND_SECONDS:
                for each in self._tracks.values():
                    each.done = True
        return () if track is None else self._guarded(packet.stream_index, track.feed(packet))

    def _ends_with(self, packet: Packet[Any]) -> bool:
        """Return whether a pipe's text track goes no further, as it names a place."""
        return packet.stream_index in self._maker.unread and has_coordinates(bytes(packet))

    def _guarded(self, index: int, packets: Iterable[Packet[Any]]) -> Iterator[Packet[Any]]:
        """A track's packets; one that fails ends there, and the video goes on without it."""
        check = self._maker.checks.get(index)
        try:
            yield from packets if check is None else check.check(packets)
        except av.FFmpegError as exc:
            self._tracks[index].done = True
            self._warn(f"track {index} ends early: {exc.strerror}")

    def _read(self) -> Generator[Packet[Any], None, None]:
        """The packets of all tracks, to the end of the input, which damage may bring early."""
        if self._pipe is not None:
            yield from self._pipe.others()
            return
        if self._timeline.begin is not None and can_seek(self._info):
            seek_before(self._source, self._timeline.begin)
        watched = [] if self._splices is None else [self._info.stream_index]
        streams = [self._source.streams[index] for index in (*watched, *self._tracks)]
        try:
            yield from self._source.demux(streams)
        except (av.FFmpegError, OSError) as exc:
            self._warn(f"sound and subtitles end early: the input cannot be read on ({exc})")

    def close(self) -> None:
        """Close the input; safe to call twice. A pipe is its owner's."""
        if self._pipe is None:
            self._source.close()
