"""Options of FFmpeg's muxers that depend on the input and on the tags to write."""

from __future__ import annotations

import io
from collections.abc import Mapping

import av
from av.container import InputContainer
from av.stream import Disposition

from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.media.pyav import TAG_OPTIONS

_INTERLEAVE_US = 1_000_000
"""How much FFmpeg's muxer holds back while a track (subtitles, say) has no packet. The tracks come
in step anyway, and its default of ten seconds would be a gigabyte of ProRes."""


def muxer_options(
    container: Container, info: VideoInfo, source: InputContainer | None, tags: Mapping[str, str]
) -> dict[str, str]:
    """The container's options, with those that depend on the input and on the tags to write."""
    options = dict(container.options) | {"max_interleave_delta": str(_INTERLEAVE_US)}
    if container.free_origin and info.container == "mpegts":
        # The same clock in and out; otherwise the muxer shifts everything by its start-up delay.
        options["mpegts_copyts"] = "1"
    if container.edit_lists and source is not None and info.is_mov:
        # Keys of the source's own (a phone's place and model) need another box than players'
        # title and artist, and there it holds no cover.
        covers = any(stream.disposition & Disposition.attached_pic for stream in source.streams)
        if not covers and _loses_tags(container, tags):
            options["movflags"] = options.get("movflags", "") + "+use_metadata_tags"
    return options


def _loses_tags(container: Container, tags: Mapping[str, str]) -> bool:
    """Return whether the container's usual boxes lack places for tags: an empty file shows it."""
    file = io.BytesIO()
    with av.open(file, "w", format=container.muxer, **TAG_OPTIONS) as empty:
        empty.add_mux_stream("h264", rate=25, width=16, height=16)
        empty.metadata.update(tags)
        empty.start_encoding()
    file.seek(0)
    with av.open(file, "r", **TAG_OPTIONS) as kept:
        return not tags.keys() <= kept.metadata.keys()
