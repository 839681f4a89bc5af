"""Face stage: finds, landmarks and follows the faces of a video."""
