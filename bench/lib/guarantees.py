"""The figures that SPECIFICATION.md guarantees, each bound to a row of the last results."""
import re
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
SPECIFICATION = BENCH.parent / "SPECIFICATION.md"

# What is generated stands between these two lines.
BEGIN = "<!-- `bench/check --write` writes this table. -->"
END = "<!-- The end of what is generated. -->"


@dataclass(frozen=True)
class Bound:
    """A bound on one cell of a page of results."""
    page: str
    row: str
    limit: float
    unit: str
    # Else at most.
    at_least: bool = False
    # The cell of the row, the first one being 0.
    cell: int = 1

    def measured(self):
        """The figure in the page."""
        for line in (BENCH / self.page).read_text().splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] == self.row and len(cells) > self.cell:
                number = re.match(r"[0-9][0-9,.]*", cells[self.cell])
                if number:
                    return float(number.group().replace(",", ""))
        raise SystemExit(f"bench/{self.page} has no figure in the row {self.row!r}")

    def holds(self):
        return self.measured() >= self.limit if self.at_least else self.measured() <= self.limit

    def show(self, number):
        digits = 0 if number == int(number) or number >= 100 else 2 if number < 1 else 1
        return f"{number:,.{digits}f} {self.unit}".strip()


@dataclass(frozen=True)
class Guarantee:
    """A sentence with its bounds, in the order in which it names them as `{}`."""
    text: str
    bounds: tuple
    command: str

    def line(self):
        text = self.text.format(*(bound.show(bound.limit) for bound in self.bounds))
        measured = "; ".join(bound.show(bound.measured()) for bound in self.bounds)
        return f"| {text} | {measured} | `{self.command}` |"


def results(row, limit, unit, **options):
    return Bound("RESULTS.md", row, limit, unit, **options)


def virtual(row, limit, unit, **options):
    return Bound("VIRTUAL.md", row, limit, unit, **options)


def autoscaler(row, limit, unit, **options):
    return Bound("AUTOSCALER.md", row, limit, unit, **options)


def containerd(row, limit):
    return Bound("CONTAINERD.md", row, limit, "times", at_least=True, cell=3)


GUARANTEES = [
    Guarantee("`plumb up` is ready within {}, a pod within {} of `kubectl apply`", (
        results("start until ready, empty, s", 1, "s"),
        results("start of `kubectl apply` until the pod is ready, ms", 300, "ms"),
    ), "bench/compare --only node"),
    Guarantee("at least {} small durable writes and {} GETs a second", (
        results("durable small writes, /s", 7000, "", at_least=True),
        results("GETs of small objects, /s", 23000, "", at_least=True),
    ), "bench/compare --only api"),
    Guarantee("PATCH `/resize` answered within {} (median), through limit range, quota and a webhook within {}", (
        results("PATCH /resize answered, ms", 1.6, "ms"),
        results("the same through limit range, quota and a webhook, ms", 3, "ms"),
    ), "bench/compare --only api"),
    Guarantee("a change at the last of 1,000 watchers within {}", (
        results("change at the last of 1,000 watchers, ms", 20, "ms"),
    ), "bench/compare --only api"),
    Guarantee("10,000 pods listed within {}, as many custom resources within {}", (
        results("list of 10,000 pods, ms", 200, "ms"),
        results("list of 10,000 custom resources, ms", 200, "ms"),
    ), "bench/compare --only lists"),
    Guarantee("PATCH `/resize` in the cgroup within {}, in the status within {} (medians); 60 pods at once within {}", (
        results("PATCH /resize until the cgroup has it, ms", 6, "ms"),
        results("PATCH /resize until the status shows it, ms", 9, "ms"),
        results("60 pods resized at once until all show it, ms", 350, "ms"),
    ), "bench/compare --only node"),
    Guarantee("on containerd, beside the kubelet on the same containerd: a resize in the cgroup {} faster, in the status "
              "{}, 60 pods at once {}; a pull by the built-in runtime as fast ({}), all at least", (
        containerd("PATCH /resize until the cgroup has it, ms", 3),
        containerd("PATCH /resize until the status shows it, ms", 3),
        containerd("60 pods resized at once until all show it, ms", 3),
        containerd("image of 4 layers and 64 MiB pulled and unpacked, ms", 1),
    ), "bench/containerd"),
    Guarantee("a pod ready within {} of its creation, the image being present", (
        results("pod created until ready, image present, ms", 30, "ms"),
    ), "bench/compare --only node"),
    Guarantee("all processes of a fresh cluster with 60 pods in {}, the autoscaler among them", (
        results("memory of all processes with 60 pods, MB", 100, "MB"),
    ), "bench/compare --only node"),
    Guarantee("all processes with 100,000 config maps of 1 KiB in {}, and a start with them within {}", (
        results("memory of all processes with 100,000 config maps of 1 KiB, MB", 400, "MB"),
        results("start until ready with 100,000 config maps of 1 KiB, s", 2, "s"),
    ), "bench/compare --only objects"),
    Guarantee("pods created and scheduled on a thousand nodes whose agents share the two cores: {} a second; without "
              "agents {}, at least", (
        virtual("10,000 pods created and scheduled on 1,000 nodes, /s", 1000, "", at_least=True),
        virtual("pods created and scheduled there, /s", 1500, "", at_least=True),
    ), "bench/virtual --only scheduling"),
    Guarantee("a decision of the scheduler within {} on 100 nodes, and within {} on 5,000", (
        virtual("a decision on 100 nodes, µs", 15, "µs"),
        virtual("a decision on 5,000 nodes, µs", 30, "µs"),
    ), "bench/virtual --only decisions"),
    Guarantee("a deployment from 0 to 1,000 ready pods within {}", (
        virtual("deployment scaled from 0 to 1,000, all ready, s", 5, "s"),
    ), "bench/virtual --only deployment"),
    Guarantee("1,000 nodes with 30 pods each, all components in one process, in {}, idle at {} cores", (
        virtual("1,000 nodes with 30 pods each, memory, MB", 2500, "MB"),
        virtual("1,000 nodes with 30 pods each, idle, cores", 0.5, ""),
    ), "bench/virtual --only idle"),
    Guarantee("the admission webhook adds {} to the creation of a pod (median), with 5,000 VPAs", (
        autoscaler("the webhook adds (p50)", 2, "ms"),
    ), "bench/autoscaler --only controllers"),
    Guarantee("from a changed recommendation to the patch of the pod within {} (median); 1,000 resizes within {}; a "
              "safety pass over 10,000 pods within {}", (
        autoscaler("from a changed recommendation to the patch of the pod (p50)", 50, "ms"),
        autoscaler("1000 resizes, whose recommendations change at once, are patched", 5000, "ms"),
        autoscaler("first safety pass over 1000 VPAs with 10 pods each, which parses pods", 100, "ms"),
    ), "bench/autoscaler --only controllers"),
    Guarantee("a start-up boost taken back within {} of its end; 1,000 that are due at once within {}", (
        autoscaler("one boost is taken back after it is due", 100, "ms"),
        autoscaler("1000 boosts that are due at once are taken back", 3000, "ms"),
    ), "bench/autoscaler --only controllers"),
    Guarantee("10 million rows of history in `plumb recommend --samples` within {}", (
        autoscaler("10,000,000", 10, "s"),
    ), "bench/autoscaler --only history"),
]


def missed():
    """A line for each bound that the last results do not hold."""
    for guarantee in GUARANTEES:
        for bound in guarantee.bounds:
            if not bound.holds():
                than = "at least" if bound.at_least else "at most"
                yield (f"{bound.row}: {bound.show(bound.measured())}, guaranteed is {than} {bound.show(bound.limit)} "
                       f"(bench/{bound.page})")


def table():
    return "\n".join([BEGIN, "", "| figure | last measured | command |", "|---|---|---|",
                      *(guarantee.line() for guarantee in GUARANTEES), "", END])


def with_table(text):
    """The specification with the table that belongs to the last results."""
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    return text[:begin] + table() + text[end:]
