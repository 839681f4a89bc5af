"""Models known by name, the files that come with bgsoft, and the cache of pulled ones."""
