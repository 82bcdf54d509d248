//! The crate through its public API.

#[cfg(test)]
mod it {
    mod apply;
    mod fixtures;
    mod fuzz;
    mod hostile;
    mod laws;
    mod objects;
    mod openapi;
    mod table;
    mod upstream;

    use serde_json::Value;

    /// Where two values differ, for the reader of a failed test.
    fn difference(ours: &Value, theirs: &Value, path: &str) -> String {
        match (ours, theirs) {
            (Value::Object(ours), Value::Object(theirs)) => {
                let mut all: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
                all.sort();
                all.dedup();
                all.into_iter()
                    .filter(|key| ours.get(*key) != theirs.get(*key))
                    .map(|key| {
                        let a = ours.get(key);
                        let b = theirs.get(key);
                        match (a, b) {
                            (Some(a), Some(b)) => difference(a, b, &format!("{path}.{key}")),
                            _ => format!("{path}.{key}: {a:?} instead of {b:?}; "),
                        }
                    })
                    .collect()
            }
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                (ours.iter().zip(theirs))
                    .enumerate()
                    .filter(|(_, (a, b))| a != b)
                    .map(|(index, (a, b))| difference(a, b, &format!("{path}[{index}]")))
                    .collect()
            }
            _ => format!("{path}: {ours} instead of {theirs}; "),
        }
    }
}
