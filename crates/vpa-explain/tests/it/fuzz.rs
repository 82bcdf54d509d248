//! The fuzz target `samples_csv` of `fuzz/`, run for a moment and without a fuzzer.

#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;
#[path = "../../../../fuzz/holds/samples_csv.rs"]
mod samples_csv;

#[test]
fn fuzz_target_samples_csv() {
    let plain =
        "1767225600,web,cpu,0.25\n2026-01-01T00:01:00Z,web,memory,1.5e8\n1767225720.5,web,oom,268435456\n";
    let named = "time,pod,container,resource,value\n# by hand\n\"1767225600\",web-0,\"web\",cpu,0.1\n";
    let seeds = [plain, named].map(|seed| seed.as_bytes().to_vec());
    let words: &[&[u8]] = &[
        b",",
        b"\n",
        b"\"",
        b"\"\"",
        b"NaN",
        b"inf",
        b"-1",
        b"1e308",
        b"9223372036",
        b"oom",
        b"\xff",
        b"\r\n",
        b"#",
    ];
    mutations::run("samples_csv", &seeds, words, 3_000, |mutations| samples_csv::holds(&mutations.input()));
}
