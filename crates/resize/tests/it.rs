//! The rules, seen from outside.

mod it {
    mod model;
    mod pods;
    mod quantity;
    mod seed;
}
