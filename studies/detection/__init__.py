"""How well `ivhl.tracker.detection.changepoints` finds changes: `python -m studies.detection`."""
