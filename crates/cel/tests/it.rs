//! The language by its public API.

mod it {
    pub(crate) mod composed;
    pub(crate) mod costs;
    pub(crate) mod hostile;
    pub(crate) mod mistakes;
    pub(crate) mod values;
}
