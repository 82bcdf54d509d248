//! The rules, seen from outside.

mod it {
    mod admission;
    mod cluster;
    mod laws;
    mod matrix;
    mod plan;
    mod pods;
    mod quantity;
    mod seed;
    mod sizes;
    mod status;
}
