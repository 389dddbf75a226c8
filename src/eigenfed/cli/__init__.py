"""The command line. Modules here import nothing heavy until a command runs."""
