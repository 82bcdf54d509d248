//! The language through its door.

mod it {
    pub(crate) mod composed;
    pub(crate) mod costs;
    pub(crate) mod hostile;
    pub(crate) mod mistakes;
    pub(crate) mod values;
}
