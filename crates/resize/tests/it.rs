//! The rules, seen from outside.

mod it {
    mod cluster;
    mod matrix;
    mod plan;
    mod pods;
    mod quantity;
    mod seed;
    mod sizes;
    mod status;
}
