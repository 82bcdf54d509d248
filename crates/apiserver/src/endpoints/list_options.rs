//! The options of a list, a watch and a deletion of a collection: which revision, and which page.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plumb_store::{Key, List, Object, Page, Prefix, Revision, RevisionError, Snapshot};
use plumb_validation::field::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ApiError;
use crate::url::Query;

/// Which revision a list is of, compared with `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Exact,
    NotOlderThan,
}

/// The options of a request that lists.
#[derive(Debug)]
pub(crate) struct ListOptions {
    limit: Option<usize>,
    continues: Option<Continue>,
    revision: Option<Revision>,
    exact: bool,
}

impl ListOptions {
    /// Reads the options of a list.
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        check(&list_errors(query))?;
        let limit = query.number("limit")?.filter(|limit| *limit > 0);
        let continues = match given(query, "continue") {
            None => None,
            Some(token) => {
                let invalid = |error| ApiError::bad_request(format!("invalid continue token: {error}"));
                Some(Continue::parse(token).map_err(invalid)?)
            }
        };
        let invalid = |error| ApiError::bad_request(format!("invalid resource version: {error}"));
        let version = given(query, "resourceVersion");
        if continues.is_some() && version.is_some_and(|version| version != "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let revision = parse_revision(version).map_err(invalid)?;
        let exact = match matching(query) {
            Some(matching) => matching == Match::Exact,
            // As it was before a client could say which it means.
            None => limit.is_some() && revision.is_some_and(|revision| revision > 0),
        };
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Self { limit, continues, revision, exact })
    }

    /// The most objects on a page.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    /// The revision that the store must have, or the last one of all if none. The pages of a continued list are of the revision
    /// of its first page, which the store has unless another server responded with it.
    pub(crate) fn needed_revision(&self) -> Option<Revision> {
        self.continues.as_ref().map_or(self.revision, |continues| continues.revision)
    }

    /// The page of a subtree that the options ask for.
    pub(crate) fn page(
        &self,
        snapshot: &Snapshot,
        prefix: Prefix,
        wanted: impl FnMut(&Object) -> bool,
    ) -> Result<Page, ApiError> {
        self.list(snapshot, prefix, self.limit, wanted)
    }

    /// All objects that this page and those after it are made of.
    pub(crate) fn rest(&self, snapshot: &Snapshot, prefix: Prefix) -> Result<Page, ApiError> {
        self.list(snapshot, prefix, None, |_| true)
    }

    fn list(
        &self,
        snapshot: &Snapshot,
        prefix: Prefix,
        limit: Option<usize>,
        wanted: impl FnMut(&Object) -> bool,
    ) -> Result<Page, ApiError> {
        let current = snapshot.revision();
        if let Some(revision) = self.revision.filter(|revision| *revision > current) {
            return Err(ApiError::too_large_resource_version(revision, current));
        }
        let mut list = List::all(prefix);
        if let Some(limit) = limit {
            list = list.limit(limit);
        }
        if let Some(continues) = &self.continues {
            if !list.prefix.covers(&continues.after) {
                return Err(ApiError::bad_request("invalid continue token: continue key is not valid"));
            }
            list = list.after(continues.after.clone());
            if let Some(revision) = continues.revision {
                list = list.at(revision);
            }
        } else if let Some(revision) = self.revision.filter(|_| self.exact) {
            list = list.at(revision);
        }
        snapshot.list_where(&list, wanted).map_err(|error| match (error, &self.continues) {
            (RevisionError::Compacted { .. }, Some(continues)) => continues.expired(),
            (RevisionError::Compacted { .. }, None) => {
                ApiError::expired("The resourceVersion for the provided list is too old.")
            }
            (error, _) => crate::error::gone(error),
        })
    }
}

/// The options of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchOptions {
    /// The revision to watch from; the current one if none.
    pub(crate) revision: Option<Revision>,
    /// Whether the objects that are there are sent first.
    pub(crate) initial_events: bool,
    /// Whether bookmarks are sent, also at the end of the initial events.
    pub(crate) bookmarks: bool,
}

impl WatchOptions {
    /// Reads the options of a watch.
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        check(&watch_errors(query))?;
        let revision = parse_revision(given(query, "resourceVersion"))
            .map_err(|error| ApiError::unexplained(error.to_string()))?;
        let revision = revision.filter(|revision| *revision > 0);
        let initial_events = match given(query, "sendInitialEvents") {
            Some(_) => query.is_on("sendInitialEvents"),
            None => revision.is_none(),
        };
        Ok(Self { revision, initial_events, bookmarks: query.is_on("allowWatchBookmarks") })
    }
}

/// The resource version that a single object must at least have been read at.
pub(crate) fn minimum_revision(query: &Query) -> Result<Option<Revision>, ApiError> {
    parse_revision(given(query, "resourceVersion")).map_err(|error| ApiError::unexplained(error.to_string()))
}

/// An option that is not empty.
fn given<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.get(name).filter(|value| !value.is_empty())
}

fn matching(query: &Query) -> Option<Match> {
    match given(query, "resourceVersionMatch") {
        Some("Exact") => Some(Match::Exact),
        Some(_) => Some(Match::NotOlderThan),
        None => None,
    }
}

const MATCH: &str = "resourceVersionMatch";
const WITH_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

fn list_errors(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let version = given(query, "resourceVersion");
    if let Some(matching) = given(query, MATCH) {
        if version.is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if given(query, "continue").is_some() {
            errors.push(FieldError::forbidden(MATCH, WITH_CONTINUE));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == Some("0") {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, why));
        }
    }
    if given(query, "sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_errors(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (matching, initial) = (given(query, MATCH), given(query, "sendInitialEvents"));
    if initial.is_some() && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(MATCH, why));
    }
    if let Some(matching) = matching {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, matching, &["NotOlderThan"]));
        }
        if given(query, "continue").is_some() {
            errors.push(FieldError::forbidden(MATCH, WITH_CONTINUE));
        }
    }
    errors
}

fn check(errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors))
}

fn parse_revision(text: Option<&str>) -> Result<Option<Revision>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let invalid = || {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        FieldError::invalid("resourceVersion", text, why)
    };
    text.parse().map(Some).map_err(|_| invalid())
}

/// Where a list goes on.
#[derive(Debug)]
pub(crate) struct Continue {
    /// The revision that all pages are of; none if the list goes on at the current one.
    revision: Option<Revision>,
    /// The last key of the page before.
    after: Key,
}

/// How a token is encoded: as upstream has it.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token for a list that goes on at the current revision.
const CURRENT: i64 = -1;

/// Why a token is not one of [`Continue`], as upstream says it.
#[derive(Debug, thiserror::Error)]
enum ContinueError {
    #[error("continue key is not valid: illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error("continue key is not valid: {0}")]
    Json(#[from] serde_json::Error),
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    ResourceVersion,
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    NoStart,
    #[error("continue key is not valid: {0}")]
    Start(String),
}

impl Continue {
    /// The token for the next page.
    pub(crate) fn token(page: &Page) -> Option<String> {
        let rv = i64::try_from(page.revision).unwrap_or(CURRENT);
        page.next.as_ref().map(|after| encode(rv, after))
    }

    fn parse(text: &str) -> Result<Self, ContinueError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            ContinueError::Base64(match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len(),
            })
        })?;
        let token: Token = serde_json::from_slice(&bytes)?;
        if token.v != TOKEN_VERSION {
            return Err(ContinueError::Version(token.v));
        }
        if token.rv == 0 {
            return Err(ContinueError::ResourceVersion);
        }
        if token.start.is_empty() {
            return Err(ContinueError::NoStart);
        }
        let after = Key::new(&token.start).map_err(|_| ContinueError::Start(token.start))?;
        Ok(Self { revision: Revision::try_from(token.rv).ok(), after })
    }

    /// The revision of the list is compacted: the client may start again, or go on at the current revision.
    fn expired(&self) -> ApiError {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
             that were created, modified, or deleted between the time the first chunk was returned and now may show \
             up in the list.",
        )
        .with_continue(encode(CURRENT, &self.after))
    }
}

fn encode(rv: i64, after: &Key) -> String {
    let token = Token { v: TOKEN_VERSION.to_owned(), rv, start: after.as_str().to_owned() };
    URL_SAFE_NO_PAD.encode(json!(token).to_string())
}
