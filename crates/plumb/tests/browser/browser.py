"""Pages of a headless Chromium that report what must not happen: errors, violations of the policy, requests to elsewhere."""
import contextlib
import urllib.parse

from playwright.sync_api import sync_playwright

from cluster import DEADLINE


@contextlib.contextmanager
def chromium(path):
    """A browser. The sandbox of Chromium needs user namespaces, which containers of CI lack; it visits this dashboard alone."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A visitor of the dashboard who has opened the printed URL."""

    def __init__(self, browser, url, **settings):
        parts = urllib.parse.urlsplit(url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.problems = []
        self.context = browser.new_context(**settings)
        self.context.set_default_timeout(DEADLINE * 1000)
        self.context.add_init_script(
            "document.addEventListener('securitypolicyviolation', event => console.error('CSP: ' + event.violatedDirective));")
        self.page = self.context.new_page()
        self.watch(self.page)
        self.page.goto(url)
        # The token is exchanged for a cookie, and leaves the address.
        self.page.wait_for_url(lambda address: "token=" not in address)
        self.page.wait_for_load_state()

    def watch(self, page):
        """Notes what goes wrong on a page."""
        page.on("console", self.console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.request(request.url))

    def console(self, message):
        if message.type == "error":
            self.problems.append(f"{message.text} ({message.location['url']})")

    def request(self, url):
        if not url.startswith((self.base + "/", "data:,")):
            self.problems.append(f"a request to {url}")

    def open(self, path):
        response = self.page.goto(self.base + path)
        assert response.status == 200, f"{path}: {response.status}"
        # The script has connected: updates arrive from now on.
        self.page.get_by_role("status").filter(has_text="Live").wait_for()
        return self.page

    def close(self):
        self.context.close()
        problems, self.problems = self.problems, []
        assert not problems, problems
