"""``python -m proctor``: the command line."""

from proctor.cli.main import main

main()
