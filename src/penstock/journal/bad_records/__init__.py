"""Records that a parser refuses: staged files of the tasks, the dead-letter stream, its replay."""
