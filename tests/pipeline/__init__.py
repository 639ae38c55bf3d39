"""The pipeline, room by room."""
