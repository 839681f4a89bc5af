"""Settings: what can be chosen, its ranges and defaults, and presets."""
