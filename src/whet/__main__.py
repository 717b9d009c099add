"""`python -m whet`: the command, where its script is not on the path."""

from whet.cli import main

if __name__ == "__main__":
    main()
