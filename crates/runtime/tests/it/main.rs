//! The runtime through its public door.
