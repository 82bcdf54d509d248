"""Draws terminal sessions as an SVG that types them.

Everything is visible without animation, so that a renderer that has none, or a reader who wants none, sees the end.
"""

import re
import textwrap
import unicodedata
from xml.sax.saxutils import escape, quoteattr

COLUMNS = 104
FONT_SIZE = 13
CHARACTER = 7.8
LINE = 19
PADDING = 14
TITLE_BAR = 28
GAP = 12
WIDTH = round(COLUMNS * CHARACTER + 2 * PADDING)

TITLES = {"cluster": "one terminal", "client": "another terminal"}

# Seconds: how long a key takes, the longest wait for output that is shown, the time to read a line.
KEY, LONGEST_WAIT, READ = 0.035, 0.8, 0.45

# Words that carry the message of a line.
HIGHLIGHTS = [
    (re.compile(r"no restart|condition met|is ready at"), "good"),
    (re.compile(r"infeasible|Infeasible|is not resized"), "bad"),
    (re.compile(r"[^\s,]+ → [^\s,]+"), "change"),
]

STYLE = """
text { font: %dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9 }
.title { fill: #8b949e; text-anchor: middle }
.prompt { fill: #3fb950 }
.typed { fill: #f0f6fc; font-weight: 600 }
.good { fill: #3fb950 }
.bad { fill: #f0883e }
.change { fill: #79c0ff }
.cover { fill: #0d1117; opacity: 0; transform-box: fill-box; transform-origin: right }
@keyframes show { from { opacity: 0 } }
@keyframes type { from { opacity: 1 } to { opacity: 1; transform: scaleX(0) } }
@media (prefers-reduced-motion: no-preference) {
  .line { animation: show 1ms both }
  .cover { animation: type both }
}
""" % FONT_SIZE


def draw(steps):
    """The SVG of a session: steps with the terminal, what is typed, its output and how long that took."""
    terminals = list(dict.fromkeys(step["terminal"] for step in steps))
    bodies = {name: [] for name in terminals}
    now = 0.6
    for step in steps:
        body = bodies[step["terminal"]]
        command = step["command"]
        body.append(typed(command, len(body), now))
        now += KEY * len(command) + 0.2 + min(step["seconds"], LONGEST_WAIT)
        lines = [part for line in step["output"] for part in wrap(line)]
        for line in lines:
            body.append(shown(line, len(body), now))
        now += 0.5 + READ * len(lines)

    windows, top = [], 0
    for name in terminals:
        lines = len(bodies[name]) + (name == terminals[-1])
        height = TITLE_BAR + lines * LINE + PADDING
        windows.append(window(name, bodies[name], top, height))
        top += height + GAP
    height = top - GAP
    label = "A terminal session: " + "; ".join(step["command"] for step in steps)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label={quoteattr(label)}>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(windows) + "\n</svg>\n"
    )


def window(name, body, top, height):
    dots = "".join(
        f'<circle cx="{PADDING + 6 + 18 * i}" cy="{TITLE_BAR / 2:g}" r="5.5" fill="{colour}"/>'
        for i, colour in enumerate(["#ff5f57", "#febc2e", "#28c840"])
    )
    return "\n".join([
        f'<g transform="translate(0 {top})">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>',
        f'<path d="M0 {TITLE_BAR}V8a8 8 0 0 1 8-8H{WIDTH - 8}a8 8 0 0 1 8 8V{TITLE_BAR}z" fill="#21262d"/>',
        dots,
        f'<text class="title" x="{WIDTH / 2:g}" y="{TITLE_BAR / 2 + 4.5:g}">{TITLES[name]}</text>',
        *body,
        "</g>",
    ])


def typed(command, row, at):
    """A command line, uncovered key by key."""
    x = PADDING + 2 * CHARACTER
    cover = (
        f'<rect class="cover" x="{x:g}" y="{baseline(row) - FONT_SIZE:g}" '
        f'width="{columns(command) * CHARACTER + 1:g}" height="{LINE - 2}" '
        f'style="animation-delay:{at:.2f}s;animation-duration:{KEY * len(command):.2f}s;'
        f'animation-timing-function:steps({len(command)})"/>'
    )
    prompt = line([text("$", PADDING, row, "prompt")], at - 0.4)
    return prompt + line([text(command, x, row, "typed")], at) + cover


def shown(content, row, at):
    """A line of output."""
    texts = [
        text(part, PADDING + columns(content[:start]) * CHARACTER, row, name) for start, part, name in parts(content)
    ]
    return line(texts, at)


def line(texts, at):
    return f'<g class="line" style="animation-delay:{max(at, 0):.2f}s">{"".join(texts)}</g>'


def text(content, x, row, name):
    # The length is given, so that columns are in line whatever font there is.
    classes = f' class="{name}"' if name else ""
    return (
        f'<text{classes} x="{x:g}" y="{baseline(row):g}" textLength="{columns(content) * CHARACTER:g}">'
        f"{escape(content)}</text>"
    )


def baseline(row):
    return TITLE_BAR + PADDING / 2 + FONT_SIZE + row * LINE


def columns(content):
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in content)


def parts(content):
    """The parts of a line that are drawn each in its column: where each begins, its text, and its highlight."""
    marked = {}
    for pattern, name in HIGHLIGHTS:
        for match in pattern.finditer(content):
            marked.update((position, name) for position in range(*match.span()))
    found = []
    # A part ends where the highlight changes, and at two spaces or more.
    for run in re.finditer(r"\S+( \S+)*", content):
        start = run.start()
        for position in range(run.start() + 1, run.end() + 1):
            if position == run.end() or marked.get(position) != marked.get(start):
                part = content[start:position]
                blank = len(part) - len(part.lstrip())
                if part.strip():
                    found.append((start + blank, part.strip(), marked.get(start)))
                start = position
    return found


def wrap(line):
    """The line, or its parts where it is longer than a terminal is wide."""
    if any(unicodedata.category(character).startswith("C") for character in line):
        raise ValueError(f"a control character in {line!r}")
    if columns(line) <= COLUMNS:
        return [line]
    return textwrap.wrap(line, COLUMNS, subsequent_indent="    ", drop_whitespace=True)
