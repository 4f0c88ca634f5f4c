"""Records, their index, and what another run of each would show."""
