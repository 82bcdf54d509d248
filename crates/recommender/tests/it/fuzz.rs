//! The fuzz target `checkpoint` of `fuzz/`, run for a moment and without a fuzzer.

#[path = "../../../../fuzz/holds/checkpoint.rs"]
mod checkpoint;
#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;

use serde_json::json;

#[test]
fn fuzz_target_checkpoint() {
    let full = json!({
        "lastUpdateTime": "2026-01-01T00:00:00Z",
        "version": "v3",
        "cpuHistogram": {
            "referenceTimestamp": "2026-01-01T00:00:00Z",
            "bucketWeights": { "8": 6467, "9": 8874, "10": 9971, "175": 10000 },
            "totalWeight": 207.69,
        },
        "memoryHistogram": {
            "referenceTimestamp": "2026-01-02T00:00:00Z", "bucketWeights": { "36": 10000 }, "totalWeight": 1.0,
        },
        "firstSampleStart": "2025-12-01T00:00:00Z",
        "lastSampleStart": "2025-12-31T23:59:00Z",
        "totalSamplesCount": 43200,
    });
    let empty = json!({ "version": "v3", "cpuHistogram": {}, "memoryHistogram": {} });
    let kills = json!({ "web-0": "2026-01-01T10:00:00Z", "web-1": "2026-01-01T23:59:59.5Z" });
    let seeds = [full, empty, kills].map(|seed| seed.to_string().into_bytes());
    let words: &[&[u8]] = &[
        b"null",
        b"0",
        b"-1",
        b"1e308",
        b"5e-324",
        b"176",
        b"255",
        b"256",
        b"4294967295",
        b"0001-01-01T00:00:00Z",
        b"2261-12-31T00:00:00Z",
        b"1678-01-01T00:00:00Z",
        b"\"v4\"",
        b"{}",
        b"[]",
    ];
    mutations::run("checkpoint", &seeds, words, 10_000, |mutations| checkpoint::holds(&mutations.input()));
}
