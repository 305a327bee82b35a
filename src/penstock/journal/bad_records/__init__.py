"""Records that a parser refuses: findings of the tasks, the dead-letter stream, its replay."""
