//! The admission webhook: new pods get the recommended resources and the CPU start-up boost; VPAs are validated.
