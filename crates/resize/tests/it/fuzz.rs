//! The fuzz targets of `fuzz/`, run for a moment and without a fuzzer.

#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;
#[path = "../../../../fuzz/holds/quantity.rs"]
mod quantity;
#[path = "../../../../fuzz/holds/validator.rs"]
mod validator;

use serde_json::json;

#[test]
fn fuzz_target_quantity() {
    let seeds = ["0", "1", "500m", "1.5Gi", "-12e3", "9223372036854775807", "1E-9", "0.000000001n", "16Ei"]
        .map(|text| text.as_bytes().to_vec());
    let words: &[&[u8]] = &[b"0", b"00000000000000000000", b".", b"e", b"E-", b"Ki", b"n", b"-", b"+", b"9"];
    mutations::run("quantity", &seeds, words, 50_000, |mutations| quantity::holds(&mutations.input()));
}

#[test]
fn fuzz_target_validator() {
    let small = json!({ "cpu": "100m", "memory": "64Mi" });
    let stored = json!({
        "metadata": { "name": "p", "generation": 3 },
        "spec": {
            "containers": [
                { "name": "a", "resources": { "requests": small, "limits": small },
                  "resizePolicy": [{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }] },
                { "name": "b", "resources": { "requests": { "cpu": "1" } } },
            ],
            "initContainers": [{ "name": "i", "restartPolicy": "Always", "resources": { "requests": small } }],
            "overhead": { "cpu": "10m" }, "os": { "name": "linux" }, "nodeName": "n",
        },
        "status": {
            "qosClass": "Burstable", "resize": "Proposed",
            "containerStatuses": [{ "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": small, "resources": { "requests": small, "limits": small } }],
            "conditions": [{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }],
        },
    });
    let mut asked = stored.clone();
    asked["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("200m");
    asked["spec"]["resources"] = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "4" } });
    let pair =
        |first: &serde_json::Value, second: &serde_json::Value| format!("{first}{second}").into_bytes();
    let seeds = [pair(&stored, &asked), pair(&asked, &stored), stored.to_string().into_bytes()];
    let dictionary = include_str!("../../../../fuzz/validator.dict");
    let words: Vec<String> = dictionary
        .lines()
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'))
        .map(|word| word.replace("\\\"", "\"").replace("\\\\", "\\"))
        .collect();
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    mutations::run("validator", &seeds, &words, 5_000, |mutations| validator::holds(&mutations.input()));
}
