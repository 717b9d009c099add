"""`python -m whet.cli`."""

from whet.cli import main

if __name__ == "__main__":
    main()
