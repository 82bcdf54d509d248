//! `serviceaccounts/token`: issues a token for a service account.

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use plumb_apischema::Schema;
use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use crate::accounts::{Accounts, Bound, Reference};
use crate::admission::Operation;
use crate::cluster::Cluster;
use crate::codec::{FieldValidation, answer_value};
use crate::error::ApiError;
use crate::object::{decode, meta, metadata, moment};
use crate::request::Call;
use crate::response_body::Body;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// The lifetime of a token that is requested without one, and the bounds.
const USUAL: i64 = 60 * 60;
const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;

/// Issues a token.
pub(crate) async fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    let accounts = call.server.accounts().ok_or_else(ApiError::no_such_path)?;
    let kind = Schema::builtin().kind(GROUP, "v1", KIND).ok_or_else(ApiError::no_such_path)?;
    let decoded = call.http.decode(kind, call.cluster().rules())?;
    call.state.warnings.extend(FieldValidation::of(&call.query)?.judge(kind, &decoded)?);
    let mut request = decoded.value;
    let (name, namespace) = (call.info.name(), call.info.namespace().unwrap_or_default());
    same_as_address(&request, name, namespace)?;

    let account = find(call.cluster(), "serviceaccounts", Some(namespace), name)?;
    let (uid, given) = (meta(&account, "uid"), meta(&request, "uid"));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        return Err(ApiError::conflict(GROUP, KIND, name, &why));
    }
    let chain = call.server.admission();
    let attributes = call.attributes(Operation::Create, &Value::Null, call.query.dry_run()?);
    chain.mutate(&attributes, &mut request).await?;
    complete(&mut request, &account, accounts, call.cluster().now());
    validate(&request)?;
    chain.validate(&attributes, &request).await?;
    let bound = bind(call.cluster(), &request, &account)?;

    let mut seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL);
    let longest = accounts.longest().map(|longest| longest.as_secs());
    if let Some(longest) = longest.filter(|longest| seconds > *longest) {
        let warning = format!("requested expiration of {seconds} seconds shortened to {longest} seconds");
        call.state.warnings.add(warning);
        seconds = longest;
        request["spec"]["expirationSeconds"] = json!(seconds);
    }
    let audiences = request["spec"]["audiences"].as_array().into_iter().flatten();
    let audiences = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
    let token = accounts.issue(bound, audiences, seconds, call.cluster().now())?;
    let end = call.cluster().now() + SignedDuration::from_secs(seconds);
    request["status"] = json!({ "token": token, "expirationTimestamp": moment(end) });
    Ok(answer_value(StatusCode::CREATED, &request))
}

fn same_as_address(request: &Value, name: &str, namespace: &str) -> Result<(), ApiError> {
    for (field, own) in [("name", name), ("namespace", namespace)] {
        let given = meta(request, field);
        if !given.is_empty() && given != own {
            let why = format!("must match the service account {field} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), given, why);
            return Err(ApiError::invalid(GROUP, KIND, name, &[error]));
        }
    }
    Ok(())
}

fn complete(request: &mut Value, account: &Value, accounts: &Accounts, now: Timestamp) {
    request["kind"] = json!(KIND);
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    let fields = metadata(request);
    for field in ["name", "namespace", "uid"] {
        fields.insert(field.into(), account["metadata"][field].clone());
    }
    fields.insert("creationTimestamp".into(), json!(moment(now)));
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(accounts.audiences());
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(USUAL);
    }
    if spec["boundObjectRef"].is_null() {
        spec["boundObjectRef"] = Value::Null;
    }
}

fn validate(request: &Value) -> Result<(), ApiError> {
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    let why = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", seconds, why);
    Err(ApiError::invalid(GROUP, KIND, "", &[error]))
}

/// An object of the core group.
fn find(cluster: &Cluster, plural: &str, namespace: Option<&str>, name: &str) -> Result<Value, ApiError> {
    let row = cluster.kinds().find("", plural).ok_or_else(ApiError::no_such_path)?;
    let stored = cluster.store().get(&row.key(namespace, name)?).ok_or_else(|| row.not_found(name))?;
    decode(&stored.value)
}

fn reference(object: &Value) -> Reference {
    Reference { name: meta(object, "name").to_owned(), uid: meta(object, "uid").to_owned() }
}

/// The objects that the token is bound to: the service account, and the object in the request.
fn bind(cluster: &Cluster, request: &Value, account: &Value) -> Result<Bound, ApiError> {
    let (namespace, account_name) = (meta(account, "namespace"), meta(account, "name"));
    let mut bound =
        Bound { namespace: namespace.to_owned(), serviceaccount: reference(account), ..Bound::default() };
    let wanted = &request["spec"]["boundObjectRef"];
    if wanted.is_null() {
        return Ok(bound);
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let found = match (group, kind) {
        ("", "Pod") => {
            let pod = find(cluster, "pods", Some(namespace), name)?;
            let own = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default();
            if own != account_name {
                let why = format!(
                    "cannot bind token for serviceaccount {account_name:?} to pod running with different serviceaccount name."
                );
                return Err(ApiError::bad_request(why));
            }
            bound.pod = Some(reference(&pod));
            bound.node = node_of_pod(cluster, &pod);
            pod
        }
        ("", "Node") => {
            let node = find(cluster, "nodes", None, name)?;
            bound.node = Some(reference(&node));
            node
        }
        ("", "Secret") => {
            let secret = find(cluster, "secrets", Some(namespace), name)?;
            bound.secret = Some(reference(&secret));
            secret
        }
        _ => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    let (given, uid) = (text("uid"), meta(&found, "uid"));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    Ok(bound)
}

/// The node of a pod; only its name if there is no Node object.
fn node_of_pod(cluster: &Cluster, pod: &Value) -> Option<Reference> {
    let name = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())?;
    let found = find(cluster, "nodes", None, name).ok();
    Some(
        found
            .map_or_else(|| Reference { name: name.to_owned(), uid: String::new() }, |node| reference(&node)),
    )
}
