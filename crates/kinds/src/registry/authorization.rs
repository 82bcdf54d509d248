//! The kinds of `authorization.k8s.io`.

mod access;
mod local_subject_access_review;
mod self_subject_access_review;
mod self_subject_rules_review;
mod subject_access_review;

pub(super) use local_subject_access_review::LocalSubjectAccessReviewStrategy;
pub(super) use self_subject_access_review::SelfSubjectAccessReviewStrategy;
pub(super) use self_subject_rules_review::SelfSubjectRulesReviewStrategy;
pub(super) use subject_access_review::SubjectAccessReviewStrategy;
