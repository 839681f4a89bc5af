"""The picture pipeline on streams that cannot wait: sources, policy, sinks."""
