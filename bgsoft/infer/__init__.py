"""Inference layer: ONNX Runtime sessions behind one small interface."""

import os

# Official builds of late send usage data to Microsoft, and keep an identifier in the user's
# cache, unless this is set before the library is loaded. Nothing here calls home.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
