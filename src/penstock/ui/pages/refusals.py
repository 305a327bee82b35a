"""What stands in place of a page: a message, or the question for the token."""

from __future__ import annotations

from penstock.ui.html import Html, h, join


def message_page(text: str) -> Html:
    """Return a page that says why there is no other."""
    return join(
        [
            h("div", h("h1", "Nothing to show"), class_="title"),
            h("p", text, class_="empty"),
            h("p", h("a", "Overview", href="/")),
        ]
    )


def sign_in_page(*, failed: bool) -> Html:
    """Return the question for the token."""
    return h(
        "form",
        h("h1", "Sign in"),
        h("p", "This dashboard asks for the token in the file that it was started with."),
        h("input", name="user", value="penstock", autocomplete="username", hidden=True),
        h("label", "Token", for_="token"),
        h(
            "input",
            id="token",
            name="token",
            type="password",
            autocomplete="current-password",
            required=True,
            autofocus=True,
        ),
        h("p", "That is not the token.", class_="error-text", role="alert") if failed else None,
        h("button", "Sign in"),
        method="post",
        action="/signin",
        class_="signin",
    )
