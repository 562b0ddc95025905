"""``python -m proctor``: the command line."""

from proctor.cli.entry import main

main()
