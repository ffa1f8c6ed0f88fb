"""`python -m rocketstream`: the command line, where its script is not on the path."""

from rocketstream.cli import main

if __name__ == "__main__":
    main()
