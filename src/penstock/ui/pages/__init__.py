"""The pages: each is a function from plain values to the content of the page."""
