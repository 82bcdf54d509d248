"""Makes the pictures of docs/dashboard.md: what a user sees of a small cluster.

usage: screenshots.py path/to/plumb path/to/chromium path/to/axe.min.js

Run by `.ci/browser --screenshots`.
"""
import base64
import pathlib
import sys

from browser import Visit, chromium
from cluster import NAMESPACE, PODS, Cluster, edit_template, phase, resize, shop
from pages import FLAGS

ROOT = pathlib.Path(__file__).resolve().parents[4]
# The most bytes of all pictures.
LARGEST = 150 << 10
# Name, page, a text to wait for, colours, and how high the picture is.
PICTURES = [
    ("overview", "/", "Deferred", "light", 760),
    ("pod", f"/pods/{NAMESPACE}/db", "used now", "dark", 760),
    ("vpa", f"/vpas/{NAMESPACE}/cart", "how often how much was used", "light", 700),
]


def main():
    cluster = Cluster(sys.argv[1], *FLAGS)
    try:
        shop(cluster)
        edit_template(cluster, "api", "200m")
        cluster.eventually("the rollout", lambda: phase(cluster, "api") == "Progressing")
        with chromium(sys.argv[2]) as browser:
            take(cluster, browser)
    finally:
        cluster.stop()


def take(cluster, browser):
    total = 0
    for name, path, text, scheme, height in PICTURES:
        visit = Visit(browser, cluster.url, color_scheme=scheme, viewport={"width": 1100, "height": height}, bypass_csp=True)
        page = visit.open(path)
        page.get_by_text(text).first.wait_for(state="attached")
        if name == "pod":
            # A chart with the mark of a resize; usage is read every 15 s.
            page.wait_for_function("document.querySelector('polyline.used').points.numberOfItems > 2")
            cluster.patch(f"{PODS}/db/resize", resize("1500m"))
            page.locator("svg line.mark").first.wait_for(state="attached")
            page.wait_for_function("document.querySelector('polyline.used').points.numberOfItems > 4")
        file = ROOT / "docs" / "screenshots" / f"{name}.webp"
        file.parent.mkdir(exist_ok=True)
        picture = visit.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 75})
        file.write_bytes(base64.b64decode(picture["data"]))
        total += file.stat().st_size
        visit.close()
    assert total <= LARGEST, f"{total} bytes are more than {LARGEST}"
    print(f"{len(PICTURES)} pictures, {total} bytes")


if __name__ == "__main__":
    main()
