//! The kinds of `authentication.k8s.io`.

mod self_subject_review;
mod token_review;

pub(super) use self_subject_review::SelfSubjectReviewStrategy;
pub(super) use token_review::TokenReviewStrategy;

use serde_json::{Value, json};

use plumb_apiserver::user::User;

/// A user as reviews have it (`UserInfo`).
fn user_info(user: &User) -> Value {
    let mut info = json!({ "username": user.name() });
    if !user.uid().is_empty() {
        info["uid"] = json!(user.uid());
    }
    if !user.groups().is_empty() {
        info["groups"] = json!(user.groups());
    }
    if !user.extra().is_empty() {
        info["extra"] = json!(user.extra());
    }
    info
}
