"""What a restart needs beside the logs: the graph checkpoint, and a changed program's match."""
