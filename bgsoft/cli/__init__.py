"""The command line: parses, calls, prints, and turns errors into exit codes."""
