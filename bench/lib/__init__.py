"""What the benchmarks share: clusters to measure, clients that measure them, and pages that say what came of it."""
