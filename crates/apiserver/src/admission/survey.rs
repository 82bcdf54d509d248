//! Surveys of stored objects that may take long, such as of all pods of a namespace whose policy changes.

use std::fmt;
use std::time::{Duration, Instant};

use super::Attributes;
use super::effort::{Effort, evaluate_long};
use crate::error::ApiError;

/// The most time of a survey: that of upstream's plugin `PodSecurity`, the only one that has them.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A survey, which returns warnings. It ends soon after the function that it is called with returns true.
pub struct Survey(Box<SurveyFn>);

type SurveyFn = dyn FnOnce(&mut dyn FnMut() -> bool) -> Vec<String> + Send;

impl Survey {
    /// A survey by a function.
    pub fn new(survey: impl FnOnce(&mut dyn FnMut() -> bool) -> Vec<String> + Send + 'static) -> Self {
        Self(Box::new(survey))
    }

    /// Runs the survey on a thread for blocking work, for half the time of the request at most, and adds its warnings to the
    /// response.
    pub(super) async fn run(self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let request = attributes.deadline;
        let survey = move |effort: &mut Effort| {
            let now = Instant::now();
            let end = now + TIMEOUT.min(request.saturating_duration_since(now) / 2);
            Ok((self.0)(&mut || Instant::now() >= end || effort.is_over()))
        };
        attributes.warnings.extend(evaluate_long(request, survey).await?);
        Ok(())
    }
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey").finish_non_exhaustive()
    }
}
