//! The API, seen by its clients.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod it {
    mod absurd;
    mod authn;
    mod backward;
    mod clients;
    mod defaults;
    mod door;
    mod ephemeral;
    mod formats;
    mod logs;
    mod objects;
    mod observed;
    mod pki;
    mod resizes;
    mod serve;
    mod shared_storage;
    mod tables;
    mod validation;
    mod watches;
}
