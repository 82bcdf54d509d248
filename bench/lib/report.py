"""Tables and a picture of what was measured."""
import statistics
from dataclasses import dataclass, field
from xml.sax.saxutils import escape


@dataclass
class Row:
    """One thing that was measured of both, again and again."""
    what: str
    unit: str
    digits: int = 1
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    @property
    def more_is_better(self):
        return self.unit.endswith("/s")

    def show(self, values):
        if not values:
            return ""
        number = lambda value: f"{value:,.{self.digits}f}"
        middle = number(statistics.median(values))
        return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"

    def ratio(self):
        """How many times better ours is."""
        if not self.ours or not self.theirs:
            return None
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return ours / theirs if self.more_is_better else theirs / ours

    def line(self):
        ratio = self.ratio()
        return (f"| {self.what}, {self.unit} | {self.show(self.ours)} | {self.show(self.theirs)} | "
                + (f"{ratio:,.1f} |" if ratio else "|"))


def table(rows):
    return ["| | plumb | Kubernetes | ratio |", "|---|---|---|---|", *(row.line() for row in rows)]


def plot(rows):
    """The ratios as bars on a logarithmic scale, as SVG."""
    import math
    rows = [row for row in rows if row.ratio()]
    left, width, height, top = 430, 420, 22, 46
    most = max(10.0, *(row.ratio() for row in rows))
    at = lambda ratio: left + width * max(0.0, math.log10(max(ratio, 1.0))) / math.log10(most * 1.3)
    total = top + height * len(rows) + 14
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 80} {total}" '
             'font-family="sans-serif" font-size="13">',
             '<style>text{fill:#333}.axis{stroke:#bbb}.bar{fill:#2a6f97}'
             '@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#555}.bar{fill:#61a5c2}}</style>',
             '<text x="8" y="18" font-weight="bold">How many times better than Kubernetes 1.36.4, on the same machine</text>']
    for mark in (1, 10, 100, 1000):
        if mark <= most * 1.3:
            parts.append(f'<line class="axis" x1="{at(mark):.0f}" x2="{at(mark):.0f}" y1="{top - 8}" y2="{total - 10}"/>'
                         f'<text x="{at(mark):.0f}" y="{top - 12}" text-anchor="middle">{mark}</text>')
    for nth, row in enumerate(rows):
        y = top + height * nth
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(row.what)}</text>'
                     f'<rect class="bar" x="{left}" y="{y + 3}" width="{max(1.0, at(row.ratio()) - left):.0f}" height="{height - 7}"/>'
                     f'<text x="{at(row.ratio()) + 6:.0f}" y="{y + 15}">{row.ratio():,.1f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
