"""Intervals at which state between frames is renewed."""

REFRESH_INTERVAL = 128
"""Frames between refreshes, counted through the video. Each renews state that would otherwise be
kept while it holds: which frames are segmented, where the close pass is, where faces are. So no
frame depends on the distant past, and a video rendered in chunks (:mod:`bgsoft.chunks`) equals
one rendered in one go."""
BACKGROUND_REFRESH_OFFSET = 32
"""Frames from each refresh to that of the background. A chunk begins there: by then, state that
fades over time (the temporal filter, new faces) has converged."""
