"""How often, counted through a video, what would else be kept is decided anew."""

REFRESH_INTERVAL = 128
"""Every so many frames, counted through the video, what would else be kept for as long as it holds
is decided anew: which frames are segmented, where the close pass is, where faces are. So no frame
depends on what happened long ago, and a video can be rendered in chunks
(:mod:`bgsoft.chunks`) that come out as they do in one go."""
BACKGROUND_REFRESH_OFFSET = 32
"""So many frames after each refresh the background is refreshed, too. A chunk begins there: by then
what fades over time (the temporal filter, new faces) has settled."""
