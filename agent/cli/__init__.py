"""The command line: one file a group of commands. Does not belong here: anything a command decides or computes."""
