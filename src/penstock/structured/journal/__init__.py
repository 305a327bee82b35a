"""``format("penstock")``: the streams of a journal."""
