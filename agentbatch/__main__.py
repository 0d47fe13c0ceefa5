"""`python -m agentbatch`: the command line."""

from agentbatch.cli import main

main()
