"""The checks of ``validate``: pure, from what files hold to findings."""
