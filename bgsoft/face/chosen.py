"""Main people that the user selects by the id of a track, or by a place and a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bgsoft.face.base import Face, hiding_ellipse
from bgsoft.face.people import Picker
from bgsoft.media.info import VideoInfo
from bgsoft.settings.main import MainPlace, parse_main


class ChosenPicker(Picker):
    """The selected main people, instead of those that a :class:`SubjectPicker` finds.

    A place selects the face that is there at its time, or the first that comes there later.

    Args:
        names: Values of ``--main``.
        ids: Ids of further tracks.
        info: The video.
    """

    def __init__(self, names: Sequence[str], ids: Collection[int], info: VideoInfo) -> None:
        named = [*map(parse_main, names)]
        self._info = info
        self._unseen = {each for each in named if isinstance(each, int)}
        """Ids that were named and have not been seen."""
        self._ids = {*ids, *self._unseen}
        self._open = [each for each in named if isinstance(each, MainPlace)]
        self._faces: dict[int, Face] = {}

    def update(self, faces: Sequence[Face], seconds: float) -> dict[int, Face]:
        for place in self._open.copy():
            distances = [(self._distance(place, face), face.id) for face in faces]
            if self._is_due(place, seconds) and distances and min(distances)[0] <= 1:
                self._ids.add(min(distances)[1])
                self._open.remove(place)
        self._unseen -= {face.id for face in faces}
        self._faces |= {face.id: face for face in faces if face.id in self._ids}
        self.main = self._faces.keys()
        return dict(self._faces)

    def _is_due(self, place: MainPlace, seconds: float) -> bool:
        """Return whether a frame's time is that of a place, or later."""
        begin = (self._info.start_pts or 0) * self._info.time_base
        return seconds >= float(begin + place.seconds) - 1e-6

    def _distance(self, place: MainPlace, face: Face) -> float:
        """Return how far a place is from a face's middle; 1 at the edge of its hidden place."""
        shape, format = hiding_ellipse(face), self._info.format
        x, y = float(place.x.pixels(format.width)), float(place.y.pixels(format.height))
        return max(abs(x - shape.x) / shape.across, abs(y - shape.y) / shape.along)

    def notices(self) -> list[str]:
        places = [f"--main {place.text}: no face was found there" for place in self._open]
        tracks = [f"--main {id}: no frame shows that track" for id in sorted(self._unseen)]
        return places + tracks

    def reset(self) -> None:
        self._faces = {}
        self.main = ()
