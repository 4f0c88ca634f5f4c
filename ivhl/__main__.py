"""``python -m ivhl``: the command line."""

from ivhl.cli import main

if __name__ == "__main__":
    main()
