"""The ``penstock`` command, for tests that run it as a process to be killed."""

from penstock.cli.main import main

if __name__ == "__main__":
    main()
