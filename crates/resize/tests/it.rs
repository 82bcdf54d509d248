//! The rules, seen from outside.

mod it {
    mod quantity;
}
