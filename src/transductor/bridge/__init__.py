"""Between automata and models: compile, extract, harden, certify."""
