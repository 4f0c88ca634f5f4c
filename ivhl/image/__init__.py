"""Cells as Docker images: build them, measure in them, compare them. See docs/docker.md."""
