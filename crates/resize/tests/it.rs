//! The rules, seen from outside.

mod it {
    mod plan;
    mod pods;
    mod quantity;
    mod seed;
    mod sizes;
}
