"""Records of other machines: bring them here, check them, show them beside ours."""
