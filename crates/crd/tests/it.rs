//! Custom kinds, from outside.

mod it {
    mod laws;
}
