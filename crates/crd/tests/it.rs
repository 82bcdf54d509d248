//! Tests of the public API.

mod it {
    mod laws;
}
