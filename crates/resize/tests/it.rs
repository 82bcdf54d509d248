//! The rules, seen from outside.

mod it {
    mod pods;
    mod quantity;
    mod seed;
}
