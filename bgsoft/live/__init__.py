"""The picture pipeline on streams that cannot wait: sources, policy, sinks."""

from bgsoft.live.reader import Reader, SharedFrame

__all__ = ["Reader", "SharedFrame"]
