"""Run the command line with ``python -m eigenfed``."""

from eigenfed.cli.main import main

if __name__ == "__main__":
    main()
