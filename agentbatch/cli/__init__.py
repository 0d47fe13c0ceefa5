"""The command line: `agentbatch`."""
