"""`python -m switchyard_py` is the `switchyard` command."""

from switchyard_py.cli import run

if __name__ == "__main__":
    run()
