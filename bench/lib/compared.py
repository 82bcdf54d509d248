"""Two clusters, measured in turns."""
from . import report, resizes
from .machine import calm


class Compared:
    """Both clusters, and the rows so far."""

    def __init__(self, ours, theirs, rounds):
        self.ours, self.theirs, self.rounds, self.rows = ours, theirs, rounds, {}

    def each(self):
        """One after the other, each when the machine is idle: what one has left to do is not to be the other's time."""
        for cluster, side in ((self.ours, "ours"), (self.theirs, "theirs")):
            calm()
            yield cluster, side

    def add(self, side, what, unit, values, digits=1):
        row = self.rows.setdefault(what, report.Row(what, unit, digits))
        getattr(row, side).extend(values)

    def measure(self, what, unit, one, digits=1, rounds=None):
        """One row: each in turn, again and again."""
        for _ in range(rounds or self.rounds):
            for cluster, side in self.each():
                self.add(side, what, unit, one(cluster), digits)
        print(self.rows[what].line(), flush=True)

    def measure_resizes(self):
        """The two rows of a resize of one pod: until its cgroup has it, and until its status shows it."""
        rows = ["PATCH /resize until the cgroup has it", "PATCH /resize until the status shows it"]
        for _ in range(self.rounds):
            for cluster, side in self.each():
                for what, values in zip(rows, resizes.latency(cluster, 20)):
                    self.add(side, what, "ms", values)
        for what in rows:
            print(self.rows[what].line(), flush=True)
