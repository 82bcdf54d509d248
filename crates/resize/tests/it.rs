//! The rules, seen from outside.

#[cfg(test)]
mod it {
    mod admission;
    mod cluster;
    mod laws;
    mod matrix;
    mod model;
    mod plan;
    mod pods;
    mod quantity;
    mod seed;
    mod sizes;
    mod status;
}
