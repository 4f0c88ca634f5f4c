"""How well `ivhl.tracker.changepoints` finds changes: `python -m studies.detection`."""
