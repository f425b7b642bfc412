"""`python -m agent.cli` is the same as `fleetwarden`."""

from agent.cli.app import main

main()
