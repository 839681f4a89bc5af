"""Small, self-contained checks of every backend, for ``bgsoft doctor``."""
