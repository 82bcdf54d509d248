//! Conversion of gRPC statuses to the errors of the runtime trait.

use plumb_runtime::Error;

use plumb_grpc::{Code, Status};

/// The errno with which the kernel rejects a memory limit below usage.
const BUSY: i32 = nix::errno::Errno::EBUSY as i32;

/// Converts the status of a failed call. `what` and `id` name the sandbox, container or image.
pub(crate) fn from_status(doing: &str, what: &'static str, id: &str, status: &Status) -> Error {
    let message = &status.message;
    // containerd reserves the names of sandboxes and containers, and reports a duplicate as an unknown error.
    if let Some(id) = reserved_for(message) {
        return Error::AlreadyExists { what, id: id.to_owned() };
    }
    let text = || format!("{doing}: {message}");
    match status.code {
        Code::NotFound => Error::NotFound { what, id: id.to_owned() },
        Code::AlreadyExists => Error::AlreadyExists { what, id: id.to_owned() },
        Code::FailedPrecondition => Error::FailedPrecondition(text()),
        Code::InvalidArgument | Code::OutOfRange => Error::InvalidArgument(text()),
        Code::Unavailable | Code::Cancelled | Code::Aborted => Error::Unavailable(text()),
        Code::DeadlineExceeded => Error::DeadlineExceeded(text()),
        Code::Unimplemented => Error::Unsupported(text()),
        Code::Unknown | Code::Other(_) => Error::Failed {
            doing: doing.to_owned(),
            message: message.clone(),
            errno: message.contains("device or resource busy").then_some(BUSY),
        },
    }
}

/// Whether a runtime does not implement a call. Some runtimes report that as an unknown error with this message.
pub(crate) fn is_unimplemented(status: &Status) -> bool {
    status.code == Code::Unimplemented
        || (status.code == Code::Unknown && status.message.contains("not implemented"))
}

/// Parses the id in `name "…" is reserved for "ID"`.
fn reserved_for(message: &str) -> Option<&str> {
    let (_, after) = message.split_once("is reserved for \"")?;
    after.split_once('"').map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_runtime_become_ours() {
        let of = |code, message: &str| {
            from_status("updating container c", "container", "c", &Status::new(code, message))
        };
        assert!(of(Code::NotFound, "no such container").is_not_found());
        assert!(of(Code::Unavailable, "connection refused").outcome_unknown());
        assert!(of(Code::DeadlineExceeded, "too late").outcome_unknown());
        assert!(matches!(of(Code::Unimplemented, "unknown method"), Error::Unsupported(_)));
        let reserved =
            "failed to reserve sandbox name \"a_b_c_0\": name \"a_b_c_0\" is reserved for \"1f2e\"";
        assert_eq!(
            of(Code::Unknown, reserved),
            Error::AlreadyExists { what: "container", id: "1f2e".into() }
        );
        let busy = of(Code::Unknown, "write memory.limit_in_bytes: device or resource busy: unknown");
        assert!(busy.is_busy() && !busy.outcome_unknown(), "{busy:?}");
    }

    #[test]
    fn an_unimplemented_call_has_two_forms() {
        assert!(is_unimplemented(&Status::new(Code::Unimplemented, "unknown method")));
        assert!(is_unimplemented(&Status::new(Code::Unknown, "not implemented")));
        assert!(!is_unimplemented(&Status::new(Code::Unknown, "no such thing")));
    }
}
