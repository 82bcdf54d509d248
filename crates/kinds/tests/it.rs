//! The defaults and the validation of the kinds, without a server.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod it {
    mod defaults;
    mod flow_control;
    mod validation;
}
