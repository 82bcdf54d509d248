"""The dashboard in a real browser: what its users see, do and are safe from.

usage: pages.py path/to/plumb path/to/chromium path/to/axe.min.js

Run by `.ci/browser`, which gets the browser, its client and axe first.
"""
import pathlib
import re
import sys
import time
import unittest

from browser import Visit, chromium
from cluster import HOSTILE, NAMESPACE, PODS, Cluster, edit_template, phase, resize, shop

FLAGS = ("--runtime", "virtual", "--nodes", "2", "--node-cpu", "4", "--node-memory", "8Gi", "--eviction-hard=",
         "--recommender-interval", "1s", "--metric-resolution", "1s",
         "--feature-gates", "InPlaceWorkloadVerticalScaling=true", "--components",
         "apiserver,controllers,scheduler,node,autoscaler,rollout")
ROLLOUT = f"/rollouts/deployment/{NAMESPACE}/api"
POD = f"/pods/{NAMESPACE}/web"
VPA = f"/vpas/{NAMESPACE}/cart"
# Every page, also in states that are rare.
PAGES = ["/", "/pods", f"/pods?namespace={NAMESPACE}&q=web", POD, f"/pods/{NAMESPACE}/batch",
         f"{POD}/what-if?container=app&cpu=3", f"{POD}/what-if?container=app&cpu=lots", "/vpas", VPA, "/rollouts", ROLLOUT]


class Pages(unittest.TestCase):
    binary = chromium = axe = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.binary, *FLAGS)
        cls.addClassCleanup(cls.cluster.stop)
        shop(cls.cluster)
        edit_template(cls.cluster, "api", "200m")
        cls.cluster.eventually("the rollout", lambda: phase(cls.cluster, "api") == "Progressing")
        cls.browser = cls.enterClassContext(chromium(cls.chromium))
        # Usage over time is drawn from its second measurement on, and the VPA has a recommendation.
        visit = Visit(cls.browser, cls.cluster.url)
        visit.open(POD).locator("svg polyline.used").first.wait_for(state="attached")
        visit.open(VPA).locator("svg line.target").first.wait_for(state="attached")
        visit.close()

    def visit(self, **settings):
        visit = Visit(self.browser, self.cluster.url, **settings)
        self.addCleanup(visit.close)
        return visit

    def test_every_page_opens_without_errors_and_requests_to_elsewhere(self):
        visit = self.visit()
        for path in PAGES:
            page = visit.open(path)
            self.assertEqual(page.locator("h1").count(), 1, path)
            self.assertIn("Plumb", page.title())

    def test_axe_finds_no_violation_on_any_page_light_or_dark_wide_or_narrow(self):
        script = pathlib.Path(self.axe).read_text(encoding="utf-8")
        for scheme, width in [("light", 1280), ("dark", 1280), ("light", 360)]:
            # Scripts of the test are not bound by the policy of the pages, which the other tests check.
            visit = self.visit(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
            for path in PAGES:
                page = visit.open(path)
                page.evaluate(script)
                found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
                found = [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]
                self.assertFalse(found, f"{path} {scheme} {width}")

    def test_colours_follow_the_system(self):
        colours = []
        for scheme in ("light", "dark"):
            page = self.visit(color_scheme=scheme).open("/")
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(colours, ["rgb(255, 255, 255)", "rgb(13, 17, 23)"])

    def test_no_page_scrolls_sideways_on_a_phone(self):
        visit = self.visit(viewport={"width": 360, "height": 740})
        for path in PAGES:
            page = visit.open(path)
            excess = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            self.assertEqual(excess, 0, path)

    def test_a_resize_shows_on_the_pages_that_are_open(self):
        detail, overview = self.visit(), self.visit()
        detail.open(f"/pods/{NAMESPACE}/db")
        overview.open("/")
        began = time.monotonic()
        self.cluster.patch(f"{PODS}/db/resize", resize("1100m"))
        detail.page.locator("#containers td", has_text="1.1").first.wait_for()
        took = time.monotonic() - began
        # A mark in the chart, once it is actual, and a row with both amounts.
        detail.page.locator("#usage tbody th time").first.wait_for()
        self.cluster.patch(f"{PODS}/web/resize", resize("3900m"))
        row = overview.page.locator("#resizes tr", has=overview.page.locator("th", has_text="web"))
        row.locator(".state", has_text="Deferred").wait_for()
        print(f"a resize was on an open page after {took * 1000:.0f} ms", flush=True)
        self.cluster.patch(f"{PODS}/web/resize", resize("500m"))

    def test_html_in_names_and_messages_is_text(self):
        visit = self.visit()
        page = visit.open(POD)
        page.locator("#events td", has_text=HOSTILE).wait_for()
        for path in ["/pods?q=%3Cimg+src=x+onerror=window.hostile=true%3E",
                     f"{POD}/what-if?container=%3Cimg%20src=x%20onerror=window.hostile=true%3E&cpu=1"]:
            page = visit.open(path)
            self.assertEqual(page.locator("main img").count(), 0, path)
        response = page.goto(visit.base + "/pods/shop/%3Cimg%20src=x%20onerror=window.hostile=true%3E")
        self.assertEqual(response.status, 404)
        self.assertIn("<img src=x", page.locator("h1").inner_text())
        self.assertIsNone(page.evaluate("window.hostile ?? null"))
        # The browser reports the status of the page itself.
        visit.problems = [problem for problem in visit.problems if "404" not in problem]

    def test_a_rollout_is_paused_resumed_and_undone_by_buttons(self):
        page = self.visit().open(ROLLOUT)
        state = page.locator("#state tbody")
        state.get_by_text("Progressing", exact=True).wait_for()
        page.get_by_role("button", name="Pause").click()
        state.get_by_text("Paused", exact=True).wait_for()
        self.cluster.eventually("the pause", lambda: phase(self.cluster, "api") == "Paused")
        page.get_by_role("button", name="Resume").click()
        state.get_by_text("Progressing", exact=True).wait_for()
        page.get_by_role("button", name="Undo").click()
        # A pod that goes back soaks, too.
        state.get_by_text(re.compile("^Roll(ing|ed)Back$")).wait_for()
        self.assertEqual(page.get_by_role("button").count(), 0)

    def test_everything_is_reached_with_the_keyboard(self):
        visit = self.visit()
        page = visit.open("/")
        focus = "document.activeElement.textContent.trim()"
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate(focus), "Skip to content")
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate("document.activeElement.id"), "main")
        page.goto(visit.base + "/")
        for expected in ["Skip to content", "Overview", "Pods"]:
            page.keyboard.press("Tab")
            self.assertEqual(page.evaluate(focus), expected)
        page.keyboard.press("Enter")
        page.wait_for_url("**/pods")
        page.get_by_label("Text").focus()
        page.keyboard.type("web")
        page.keyboard.press("Enter")
        page.wait_for_url("**/pods?*q=web*")
        page.get_by_role("link", name="web", exact=True).focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**" + POD)

    def test_the_focus_stays_where_it_is_when_a_section_changes(self):
        page = self.visit().open("/pods")
        link = page.get_by_role("link", name="db", exact=True)
        link.focus()
        row = page.locator("#pods tr", has=link)
        self.cluster.patch(f"{PODS}/db/resize", resize("1200m"))
        row.get_by_text("1.2").first.wait_for()
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "db")

    def test_a_visitor_without_the_token_sees_nothing(self):
        context = self.browser.new_context()
        self.addCleanup(context.close)
        page = context.new_page()
        response = page.goto(self.cluster.url.split("?")[0])
        self.assertEqual(response.status, 401)
        self.assertEqual(page.locator("table").count(), 0)


class Questions(unittest.TestCase):
    """The questions in docs/dashboard.md, from the overview on: each step is a click, or a text with Enter."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(Pages.binary, *FLAGS)
        cls.addClassCleanup(cls.cluster.stop)
        shop(cls.cluster)
        edit_template(cls.cluster, "api", "200m")
        cls.browser = cls.enterClassContext(chromium(Pages.chromium))

    def ask(self, steps, expected):
        """Takes the steps, and waits for the text that answers the question."""
        self.assertLessEqual(len(steps), 3)
        visit = Visit(self.browser, self.cluster.url)
        page = visit.open("/")
        for step in steps:
            step(page)
        section, text = expected
        page.locator(f"#{section}", has_text=text).wait_for()
        visit.close()

    def test_which_resizes_wait_and_who_holds_the_capacity(self):
        self.ask([], ("resizes", "Deferred"))

    def test_why_does_the_resize_of_this_pod_wait(self):
        self.ask([link("batch")], ("summary", "The resize is deferred"))

    def test_what_do_we_waste(self):
        self.ask([], ("waste", "Not used"))

    def test_which_node_is_full(self):
        self.ask([], ("nodes", "Share"))

    def test_why_is_this_pod_slow_to_start(self):
        self.ask([link("Pods"), text("web"), link("web")], ("events", "Started"))

    def test_would_other_requests_fit_and_where(self):
        def amount(page):
            page.get_by_label("CPU request").fill("1")
            page.get_by_role("button", name="What if").click()

        self.ask([link("batch"), link("What if it requested other amounts?"), amount], ("nodes", "Fits"))

    def test_what_does_the_autoscaler_recommend_and_from_what(self):
        self.ask([link("VPAs"), link("cart")], ("history", "CPU samples"))

    def test_what_would_change_if_the_recommendation_was_applied(self):
        self.ask([link("VPAs"), link("cart")], ("pods", "cart-"))

    def test_how_far_is_the_rollout_and_which_pods_are_stuck(self):
        self.ask([link("Rollouts"), link("deployment/api")], ("pods", "Soaking"))

    def test_how_do_i_stop_the_rollout(self):
        def pause(page):
            page.get_by_role("button", name="Pause").click()

        self.ask([link("Rollouts"), link("deployment/api"), pause], ("state", "Paused"))


def link(name):
    return lambda page: page.get_by_role("link", name=name, exact=True).first.click()


def text(wanted):
    def search(page):
        page.get_by_label("Text").fill(wanted)
        page.keyboard.press("Enter")

    return search


if __name__ == "__main__":
    Pages.binary, Pages.chromium, Pages.axe = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
