"""`python -m optsched` is `optsched`."""

from optsched.cli import main

if __name__ == "__main__":
    main(prog_name="optsched")
