//! The crate through its public door.

mod it {
    mod fixtures;
    mod table;
}
