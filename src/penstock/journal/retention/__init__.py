"""Who still needs which blocks, and the deletion of those that nobody needs."""
